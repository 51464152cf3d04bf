"""The command nexmark: answers a query of the benchmark, and compares the rows with DuckDB's."""

import os
import sys
import time
from typing import Annotated

import typer

from jetfast.cli.cluster_options import ClusterKind, Kind, Master, Members, Workers, make_cluster
from jetfast.cli.exit_status import FAILED
from jetfast.cli.output import AsJson, command, describe_seconds, print_facts, print_json
from jetfast.errors import JobDefinitionError
from jetfast.nexmark.answer import answer_with_jetfast, needs_local_cluster
from jetfast.nexmark.check import answer_with_duckdb, find_difference
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.query import Events
from jetfast.nexmark.source import EVENT_RATE


@command
def nexmark(
    query: Annotated[str, typer.Argument(metavar="QUERY", help=f"One of {', '.join(QUERIES)}.")],
    events: Annotated[int, typer.Option(min=0, help="Persons, auctions and bids together.")] = 1_000_000,
    event_rate: Annotated[float, typer.Option(help="Events in a second of event time.")] = EVENT_RATE,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other rows.")] = 0,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each source.")] = 4,
    cluster: Kind = ClusterKind.LOCAL,
    members: Members = None,
    workers: Workers = None,
    master: Master = None,
    check: Annotated[bool, typer.Option("--check", help="Compare the rows with DuckDB's; 1 if they differ.")] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that it is compared with, and run nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a query of NEXMark over made-up events, and say what it took."""
    if query not in QUERIES:
        raise JobDefinitionError(f"there is no query {query!r}; there are {', '.join(QUERIES)}")
    asked = QUERIES[query]
    if sql:
        sys.stdout.write(asked.sql + "\n")
        return
    if asked.goes_by_clock and cluster is not ClusterKind.LOCAL:
        raise needs_local_cluster(asked)  # before Spark starts
    wanted = Events(events, event_rate, seed, partitions)
    where = make_cluster(cluster, members, workers, master)
    wall_before, cpu_before = time.perf_counter(), _cpu_seconds()
    answer = answer_with_jetfast(asked, wanted, where)
    wall, cpu = time.perf_counter() - wall_before, _cpu_seconds() - cpu_before
    difference = find_difference(answer, answer_with_duckdb(asked, wanted)) if check else None
    if as_json:
        print_json(
            {
                "query": query,
                "events": events,
                "rows": answer.num_rows,
                "wall_s": round(wall, 3),
                "cpu_s": round(cpu, 3),
                "equal": difference is None if check else None,
            }
        )
    else:
        print_facts(
            {
                query: asked.question,
                "": asked.note,
                "events": f"{events:,}",
                "rows": f"{answer.num_rows:,}",
                "took": f"{describe_seconds(wall)}, {describe_seconds(cpu)} of CPU",
                "check": ("the rows of DuckDB" if difference is None else f"not those of DuckDB: {difference}")
                if check
                else "",
            }
        )
    if difference is not None:
        if as_json:
            sys.stderr.write(f"jetfast: {query}: {difference}\n")
        raise typer.Exit(FAILED)


def _cpu_seconds() -> float:
    """Seconds of CPU of this process, and of members that were processes of it and have ended."""
    return sum(os.times()[:4])
