"""A second opinion on the oracle itself: DuckDB says which rows meet, which are one group, and what sums they have.

It is asked about the rows that a step takes in, as the oracle has them, so a difference is a mistake of either of
these two and not of jetfast.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from tests.differential import joins, keyed, windows
from tests.differential.flows import Flow
from tests.differential.pipelines import Program
from tests.differential.values import Near, positive_zero, to_arrow, to_exact, to_group, to_key

AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "mean": "avg",
    "count_distinct": "count(distinct",
}
AGGREGATES |= {name: name for name in ("var_samp", "var_pop", "stddev_samp", "stddev_pop")}


def second_opinion(program: Program, flows: Sequence[Flow]) -> str:
    """How DuckDB's answers differ from the oracle's, or ""."""
    for number, (node, flow) in enumerate(zip(program.nodes, flows, strict=True)):
        inputs = [flows[place] for place in node.inputs]
        operator = node.operator
        why = ""
        if isinstance(operator, joins.Join):
            why = check_join(operator, *inputs)
        elif isinstance(operator, windows.WindowAggregate):
            why = check_window(operator, inputs[0])
        elif isinstance(operator, keyed.Distinct):
            why = check_distinct(flow, inputs[0])
        if why:
            return f"oracles disagree about n{number}: {why}"
    return ""


def is_known(data_type: pa.DataType) -> bool:
    """Does DuckDB compare such values as documented here?"""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_float32(data_type)
        or pa.types.is_float64(data_type)
        or pa.types.is_string(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_decimal128(data_type)
        or pa.types.is_date32(data_type)
    )


def relation(flow: Flow, names: Sequence[str]) -> pa.Table:
    """Columns of a flow by number, with the place of each row and its event time."""
    columns = {f"c{number}": to_arrow(flow.column(name), flow.types[name]) for number, name in enumerate(names)}
    columns["id"] = pa.array(range(len(flow.rows)), pa.int64())
    if flow.time is not None:
        columns["moment"] = pa.array(flow.moments(), pa.int64())
    return pa.table(columns)


def ask(sql: str, **tables: pa.Table) -> pa.Table:
    """Ask DuckDB over Arrow tables."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def in_windows(table: str, window: windows.Window) -> str:
    """SQL of rows, each once for each window it lies in."""
    since, slide = f"(moment - {window.offset})", window.slide
    floor = f"{since} - (({since} % {slide}) + {slide}) % {slide}"
    first = f"({floor} + {window.offset} + {window.slide})"
    return f"(select *, unnest(range({first}, {first} + {window.size}, {window.slide})) as window_end from {table})"


def check_join(join: joins.Join, left: Flow, right: Flow) -> str:
    """Which rows meet."""
    types = [left.types[name] for name in join.left_on] + [right.types[name] for name in join.right_on]
    if not all(map(is_known, types)):
        return ""
    equal = " and ".join(f"l.c{number} = r.c{number}" for number in range(len(join.left_on)))
    how = {"inner": "inner", "left": "left", "right": "right", "outer": "full"}[join.how]
    columns, sides = "l.id, r.id", ("l", "r")
    if join.kind == "interval":
        equal += f" and r.moment - l.moment between {join.lower} and {join.upper}"
    elif join.kind == "window":
        sides = in_windows("l", join.window), in_windows("r", join.window)
        equal += " and l.window_end = r.window_end"
        columns += ", coalesce(l.window_end, r.window_end)"
    elif join.kind == "asof":
        if len(
            {
                (to_group(row), at)
                for row, at in zip(joins.group_keys(right, join.right_on), right.moments(), strict=True)
            }
        ) < len(right.rows):
            return ""
        equal += " and l.moment >= r.moment"
        columns += ", l.moment - r.moment"
        how = f"asof {how}"
    sql = f"select {columns} from {sides[0]} l {how} join {sides[1]} r on {equal}"
    answer = ask(sql, l=relation(left, join.left_on), r=relation(right, join.right_on))
    found = list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
    expected: list[tuple[Any, ...]] = [pair if join.kind == "window" else pair[:2] for pair in join.pairs(left, right)]
    if join.kind == "asof":
        limit = join.tolerance
        too_old = [row for row in found if limit is not None and row[2] is not None and row[2] > limit]
        found = [row[:2] for row in found if row not in too_old]
        found += [(row[0], None) for row in too_old] if join.how == "left" else []
    return difference(expected, found)


def difference(expected: Sequence[Any], found: Sequence[Any]) -> str:
    """Rows that only one has."""
    one, other = sorted(map(repr, expected)), sorted(map(repr, found))
    if one == other:
        return ""
    return f"{len(one)} and {len(other)} rows; only one has {sorted(set(one) ^ set(other))[:3]}"


def check_window(operator: windows.WindowAggregate, flow: Flow) -> str:
    """Which windows there are, and those aggregates that DuckDB has."""
    aggregates = [each for _, each in operator.aggregates if is_asked(each, flow)]
    names = list(operator.keys)
    if operator.window.is_session or not all(is_known(flow.types[name]) for name in names):
        return ""
    columns = [name for each in aggregates for name in each.columns]
    asked = []
    for each in aggregates:
        argument = f"c{len(names) + columns.index(each.columns[0])}" if each.columns else "*"
        function = AGGREGATES[each.kind]
        asked.append(f"{function}({argument})" if "(" not in function else f"{function} {argument})")
    keys = [f"c{number}" for number in range(len(names))]
    wanted = ", ".join([*keys, "window_end", "count(*)", *asked])
    sql = f"select {wanted} from {in_windows('l', operator.window)} group by all"
    answer = ask(sql, l=relation(flow, [*names, *columns]))
    rows = list(zip(*(to_exact(column) for column in answer.columns), strict=True))
    found = {to_group(row[: len(names) + 1]): row[len(names) + 1 :] for row in rows}
    groups = windows.grouped(flow, names, operator.window)
    if len(rows) != len(found) or len(found) != len(groups):
        return f"{len(rows)} windows instead of {len(groups)}"
    for (key, (_, end)), held in groups.items():
        values = found.get((*key, end))
        values_here = [len(held), *(each.compute(flow, windows.in_order_of_rows(held)) for each in aggregates)]
        if values is None or not all(map(is_equal, values_here, values)):
            return f"{key} at {end}: {values_here} and {values}"
    return ""


def is_asked(aggregate: Any, flow: Flow) -> bool:
    """Has DuckDB the same rule? Its sums of decimals and of integers beyond 64 bits have other types."""
    if aggregate.kind not in AGGREGATES:
        return False
    if not aggregate.columns:
        return aggregate.kind == "count"
    data_type = flow.types[aggregate.columns[0]]
    if aggregate.kind in ("min", "max", "count", "count_distinct"):
        return is_known(data_type)
    values = [value for value in flow.column(aggregate.columns[0]) if value is not None]
    is_small = all(abs(value) < 1e100 and (value == 0 or abs(value) > 1e-100) for value in values)
    return is_known(data_type) and (pa.types.is_integer(data_type) or pa.types.is_float64(data_type)) and is_small


def is_equal(expected: Any, found: Any) -> bool:
    if isinstance(expected, Near):
        slack = expected.tolerance + 1e-6 * abs(expected.value)
        return found is not None and abs(float(found) - expected.value) <= slack
    if isinstance(found, Decimal) and isinstance(expected, int):
        found = int(found)
    return bool(to_key(positive_zero(expected)) == to_key(positive_zero(found)))


def check_distinct(made: Flow, flow: Flow) -> str:
    """How many different rows there are."""
    if not all(map(is_known, made.types.values())):
        return ""
    answer = ask("select count(*) from (select distinct columns('c[0-9]+') from l)", l=relation(flow, made.names))
    count = answer.column(0)[0].as_py()
    return "" if count == len(made.rows) else f"{count} instead of {len(made.rows)} different rows"
