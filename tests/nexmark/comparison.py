"""A query of NEXMark on some cluster, compared with DuckDB."""

from jetfast.clusters.cluster import Cluster
from jetfast.nexmark.answer import answer_with_jetfast
from jetfast.nexmark.check import answer_with_duckdb, find_difference
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.query import Events


def check_answer(name: str, cluster: Cluster) -> None:
    """Ask, and raise AssertionError with the first row that differs."""
    query, events = QUERIES[name], Events(10_000, event_rate=400, seed=5, partitions=3)
    answer = answer_with_jetfast(query, events, cluster)
    assert answer.num_rows > 0
    assert find_difference(answer, answer_with_duckdb(query, events)) is None
