"""Sources and the steps without keys: expressions, functions, unions, order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import jetfast as jf
from jetfast.api.pipeline import Pipeline
from jetfast.api.stage import Stage
from tests.differential.expressions import CONDITION, Drawer, RowError, Tree, Watch, evaluate, simpler, to_jetfast
from tests.differential.flows import DoesNotFitError, FailsError, Flow, choose
from tests.differential.tables import Table, draw_table
from tests.differential.values import plain, to_order

Outputs = tuple[tuple[str, Tree], ...]


def is_simple(data_type: pa.DataType) -> bool:
    """Do its values survive as objects of Python?"""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_float64(data_type)
        or pa.types.is_string(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_binary(data_type)
    )


@dataclass(frozen=True)
class Source:
    """A table in memory, whole or in partitions, or in a file."""

    INPUTS = 0
    table: Table
    kind: str
    partitions: int
    batch_rows: int
    directory: str
    """Of files."""

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Source":
        table = draw_table(random, prefix=random.choice("cde"), timed=random.random() < 0.7)
        kind = random.choice(["batches", "batches", "batches", "table", "partitions", "ipc", "parquet"])
        return cls(table, kind, random.randint(2, 4), random.choice([1, 3, 100, 65536]), "")

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        batches = self.table.batches()
        schema = self.table.schema()
        if self.kind == "partitions":
            source: Any = jf.memory(
                pa.Table.from_batches(batches, schema), partitions=self.partitions, batch_rows=self.batch_rows
            )
        elif self.kind == "table":
            source = jf.memory(pa.Table.from_batches(batches, schema), batch_rows=self.batch_rows)
        elif self.kind == "batches":
            source = jf.memory(batches, batch_rows=self.batch_rows)
        else:
            source = self.file(Path(self.directory) / name, batches)
        stage = pipeline.read(source, name=name)
        if self.table.time is not None:
            stage = stage.with_event_time(self.table.time, jf.watermarks.fixed_lag(f"{self.lag_us()}us"))
        return stage

    def file(self, path: Path, batches: Sequence[pa.RecordBatch]) -> Any:
        """Write the table; return a source that reads it."""
        table = pa.Table.from_batches(batches, self.table.schema())
        path.mkdir(parents=True, exist_ok=True)
        if self.kind == "parquet":
            pq.write_table(table, path / "part.parquet", row_group_size=10)
            return jf.files(str(path / "part.parquet"), batch_rows=self.batch_rows)
        with pa.ipc.new_file(str(path / "part.arrow"), table.schema) as writer:
            writer.write_table(table.unify_dictionaries())
        return jf.files(str(path / "part.arrow"), batch_rows=self.batch_rows)

    def lag_us(self) -> int:
        """The least lag with which no row is late."""
        flow = self.compute(0, [])
        lag = top = 0
        for place, moment in enumerate(flow.moments()):
            top = moment if place == 0 else max(top, moment)
            lag = max(lag, top - moment)
        return lag

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        rows = self.table.rows()
        types = self.table.types
        if self.table.time is not None:
            place = list(types).index(self.table.time)
            rows = [row for row in rows if row[place] is not None]  # others are rejected
        made = Flow(types, tuple(rows), self.table.time, 0, self.kind != "partitions", sources=frozenset({node}))
        return in_parquet(made, self.table) if self.kind == "parquet" else made

    def smaller(self) -> Iterator["Source"]:
        """Simpler ones."""
        if self.kind != "batches":
            yield replace(self, kind="batches")
        if self.batch_rows != 65536:
            yield replace(self, batch_rows=65536)
        for table in self.table.smaller():
            yield replace(self, table=table)


def in_parquet(flow: Flow, table: Table) -> Flow:
    """What Parquet makes of types: seconds become milliseconds, 64-bit dates are days. Some types it cannot hold."""
    types = {}
    columns = []
    for column in table.columns:
        kept, values = parquet_column(column.data_type, flow.types[column.name], flow.column(column.name))
        types[column.name] = kept
        columns.append(values)
    return replace(flow, types=types, rows=tuple(zip(*columns, strict=True)))


def parquet_column(written: pa.DataType, data_type: pa.DataType, values: list[Any]) -> tuple[pa.DataType, list[Any]]:
    """Type and values of a column that was in a Parquet file. Raises DoesNotFitError."""
    if written != data_type or pa.types.is_nested(data_type) or pa.types.is_interval(data_type):
        raise DoesNotFitError("files of types with layouts are for tests of files")
    if pa.types.is_duration(data_type) or pa.types.is_null(data_type) or pa.types.is_float16(data_type):
        raise DoesNotFitError("not in Parquet")
    if (pa.types.is_decimal(data_type) and not pa.types.is_decimal128(data_type)) or pa.types.is_uint32(data_type):
        raise DoesNotFitError("not in Parquet")
    if pa.types.is_date64(data_type):
        return pa.date32(), [None if value is None else value // 86_400_000 for value in values]
    if (pa.types.is_timestamp(data_type) or pa.types.is_time(data_type)) and data_type.unit == "s":
        if any(value is not None and abs(value) > 2**50 for value in values):
            raise DoesNotFitError("out of range in milliseconds")
        longer = pa.timestamp("ms", data_type.tz) if pa.types.is_timestamp(data_type) else pa.time32("ms")
        return longer, [None if value is None else value * 1000 for value in values]
    return data_type, values


def computed(flow: Flow, tree: Tree, on_error: str, step: str, name: str) -> list[Any]:
    """Values of an expression. Raises DoesNotFitError where it is not certain, FailsError where the job must fail."""
    if tree.columns():
        flow.require_exact(*tree.columns())
    for each, data_type in columns_of(tree):
        if flow.types[each] != data_type:
            raise DoesNotFitError("another type")
    watch = Watch(forgives=on_error == "null")
    values = []
    failed = False
    for row in flow.rows:
        try:
            values.append(evaluate(tree, dict(zip(flow.types, row, strict=True)), watch))
        except RowError:
            failed = True
            values.append(None)
    if not watch.is_certain and not watch.forgives:
        raise DoesNotFitError("an error beside null")
    if failed and on_error == "fail":
        raise FailsError(step, name)
    return values


def columns_of(tree: Tree) -> Iterator[tuple[str, pa.DataType]]:
    """Columns with the types that the expression was drawn for."""
    if tree.operator == "column":
        yield tree.detail, tree.data_type
    for operand in tree.operands:
        yield from columns_of(operand)


def draw_on_error(random: Random) -> str:
    return "null" if random.random() < 0.6 else "fail"


@dataclass(frozen=True)
class Columns:
    """select, with_column or with_columns: columns by expressions."""

    INPUTS = 1
    method: str
    kept: tuple[str, ...]
    outputs: Outputs
    on_error: str

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Columns":
        (flow,) = flows
        drawer = Drawer(random, flow.exact_types)
        outputs = []
        for number in range(random.choice([1, 1, 2, 3])):
            name = f"x{number}"
            if random.random() < 0.15:
                name = choose(random, flow.types)
            outputs.append((name, drawer.draw()))
        kept = [name for name in flow.names if random.random() < 0.8 or name == flow.time]
        random.shuffle(kept)
        method = random.choice(["select", "with_column", "with_columns", "with_columns"])
        if method == "with_column":
            del outputs[1:]
        taken = {name for name, _ in outputs}
        kept = [name for name in kept if name not in taken]
        return cls(method, tuple(kept), tuple(dict(outputs).items()), draw_on_error(random))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        (stage,) = stages
        made = {output: to_jetfast(tree) for output, tree in self.outputs}
        if self.method == "with_column":
            ((output, expression),) = made.items()
            return stage.with_column(output, expression, name=name, on_error=self.on_error)  # type: ignore[arg-type]
        if self.method == "with_columns":
            return stage.with_columns(made, name=name, on_error=self.on_error)  # type: ignore[arg-type]
        named = [expression.alias(output) for output, expression in made.items()]
        return stage.select(*self.kept, *named, name=name, on_error=self.on_error)  # type: ignore[arg-type]

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require_exact(*self.kept) if not flow.near else [flow.place(name) for name in self.kept]
        values = {name: computed(flow, tree, self.on_error, f"n{node}", name) for name, tree in self.outputs}
        types = {name: tree.data_type for name, tree in self.outputs}
        if self.method == "select":
            order = [*self.kept, *values]
        else:
            order = [*flow.names, *(name for name in values if name not in flow.types)]
        columns = [values[name] if name in values else flow.column(name) for name in order]
        rows = zip(*columns, strict=True) if flow.rows else ()
        kept_time = flow.time if flow.time in order and flow.time not in values else None
        return flow.of(
            rows,
            types={name: types[name] if name in types else flow.types[name] for name in order},
            time=kept_time,
            near=flow.near & set(order) - set(values),
        )

    def trees(self) -> list[tuple[str, Tree]]:
        return list(self.outputs)

    def smaller(self) -> Iterator["Columns"]:
        for place, (name, tree) in enumerate(self.outputs):
            if len(self.outputs) > 1:
                yield replace(self, outputs=self.outputs[:place] + self.outputs[place + 1 :])
            for other in simpler(tree):
                yield replace(self, outputs=(*self.outputs[:place], (name, other), *self.outputs[place + 1 :]))


@dataclass(frozen=True)
class Where:
    """Rows of which a condition is true."""

    INPUTS = 1
    condition: Tree
    on_error: str

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Where":
        tree = Drawer(random, flows[0].exact_types).draw(CONDITION)
        return cls(tree, draw_on_error(random))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].where(to_jetfast(self.condition), name=name, on_error=self.on_error)  # type: ignore[arg-type]

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        kept = computed(flow, self.condition, self.on_error, f"n{node}", "")
        rows = (row for row, condition in zip(flow.rows, kept, strict=True) if condition is True)
        return flow.of(rows, sorted_output=flow.sorted_output)

    def trees(self) -> list[tuple[str, Tree]]:
        return [("condition", self.condition)]

    def smaller(self) -> Iterator["Where"]:
        for other in simpler(self.condition):
            yield replace(self, condition=other)


@dataclass(frozen=True)
class DropColumns:
    """All columns but some."""

    INPUTS = 1
    names: tuple[str, ...]

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "DropColumns":
        others = [name for name in flows[0].names if name != flows[0].time]
        if len(others) < 2:
            raise DoesNotFitError("too few columns")
        return cls(tuple(random.sample(others, random.randint(1, min(2, len(others) - 1)))))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].drop(*self.names, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        gone = {flow.place(name) for name in self.names}
        if len(gone) == len(flow.types):
            raise DoesNotFitError("no column is left")
        rows = (tuple(value for place, value in enumerate(row) if place not in gone) for row in flow.rows)
        types = {name: each for name, each in flow.types.items() if name not in self.names}
        time = None if flow.time in self.names else flow.time
        return flow.of(rows, types=types, time=time, near=flow.near - set(self.names))


@dataclass(frozen=True)
class Rename:
    """Another name for a column."""

    INPUTS = 1
    old: str
    new: str

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Rename":
        return cls(choose(random, flows[0].names), random.choice(["name", "a b", "ü", "select"]))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].rename({self.old: self.new}, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.place(self.old)
        if self.new in flow.types:
            raise DoesNotFitError("taken")
        names = {self.old: self.new}
        return flow.of(
            flow.rows,
            types={names.get(name, name): each for name, each in flow.types.items()},
            time=names.get(flow.time or "", flow.time),
            near=frozenset(names.get(name, name) for name in flow.near),
        )


def as_table(rows: pa.RecordBatch) -> pa.Table:
    """For `map_batches`."""
    return pa.Table.from_batches([rows])


def in_halves(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """For `map_batches`."""
    return [rows.slice(0, len(rows) // 2), rows.slice(len(rows) // 2)]


def with_seven(rows: pa.RecordBatch) -> pa.RecordBatch:
    """For `map_batches`."""
    return rows.append_column("seven", pa.array([7] * len(rows), pa.int64()))


@dataclass(frozen=True)
class MapBatches:
    """A function over batches."""

    INPUTS = 1
    kind: str
    told: bool
    """Is the schema given?"""

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "MapBatches":
        kind = random.choice(["table", "halves", "seven"])
        return cls(kind, kind == "halves" or random.random() < 0.5)

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        function = {"table": as_table, "halves": in_halves, "seven": with_seven}[self.kind]
        schema = stages[0].schema
        if self.kind == "seven":
            schema = schema.append(pa.field("seven", pa.int64()))
        return stages[0].map_batches(function, schema=schema if self.told else None, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        if self.kind != "seven":
            return flow.of(flow.rows)
        if "seven" in flow.types:
            raise DoesNotFitError("taken")
        return flow.of(((*row, 7) for row in flow.rows), types={**flow.types, "seven": pa.int64()})


def same_row(row: dict[str, Any]) -> dict[str, Any]:
    """For `map_rows`."""
    return dict(row)


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    """For `flat_map`."""
    return [row, dict(row)]


@dataclass(frozen=True)
class MapRows:
    """A function over rows, of columns that Python can hold."""

    INPUTS = 1
    kept: tuple[str, ...]
    doubles: bool

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "MapRows":
        simple = [name for name, each in flows[0].types.items() if is_simple(each)]
        if not simple:
            raise DoesNotFitError("no simple columns")
        return cls(tuple(random.sample(simple, random.randint(1, len(simple)))), random.random() < 0.4)

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        stage = stages[0].select(*self.kept, name=f"{name} (columns)")
        schema = pa.schema([(field.name, plain(field.type)) for field in stage.schema])
        if self.doubles:
            return stage.flat_map(twice, schema=schema, name=name)
        return stage.map_rows(same_row, schema=schema, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        places = [flow.place(name) for name in self.kept]
        types = {name: flow.types[name] for name in self.kept}
        if not all(map(is_simple, types.values())):
            raise DoesNotFitError("not simple")
        rows = [tuple(row[place] for place in places) for row in flow.rows for _ in range(1 + self.doubles)]
        return flow.of(rows, types=types, time=None, near=flow.near & set(self.kept))


@dataclass(frozen=True)
class Explode:
    """A row for each element of a list."""

    INPUTS = 1
    column: str

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Explode":
        return cls(choose(random, (name for name, each in flows[0].types.items() if pa.types.is_list(each))))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].explode(self.column, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        place = flow.place(self.column)
        if not pa.types.is_list(flow.types[self.column]) or self.column in flow.near:
            raise DoesNotFitError("no list")
        rows = ((*row[:place], value, *row[place + 1 :]) for row in flow.rows for value in row[place] or ())
        types = {**flow.types, self.column: flow.types[self.column].value_type}
        return flow.of(rows, types=types)


@dataclass(frozen=True)
class Union:
    """All rows of a stage, of another with its columns, and of itself again."""

    INPUTS = 1
    selected: bool

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Union":
        return cls(random.random() < 0.5)

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        (stage,) = stages
        other = (
            stage.select(*stage.schema.names, name=f"{name} (columns)")
            if self.selected
            else stage.peek(1, name=f"{name} (look)")
        )
        return stage.union(other, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        return flow.of(flow.rows * 2, ordered=False)


@dataclass(frozen=True)
class Sort:
    """All rows in the order of some columns."""

    INPUTS = 1
    columns: tuple[str, ...]
    descending: tuple[bool, ...]

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Sort":
        types = flows[0].exact_types
        simple = [name for name, each in types.items() if not pa.types.is_nested(each) and not pa.types.is_null(each)]
        columns = list(dict.fromkeys(choose(random, simple or types) for _ in range(random.randint(1, 3))))
        return cls(tuple(columns), tuple(random.random() < 0.4 for _ in columns))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].sort(*self.columns, descending=list(self.descending), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require_exact(*self.columns)
        rows = list(flow.rows)
        for name, descending in reversed(list(zip(self.columns, self.descending, strict=True))):
            place = flow.place(name)
            if pa.types.is_nested(flow.types[name]) or pa.types.is_interval(flow.types[name]):
                return flow.of(rows, ordered=False)  # refused when it is built
            known = [row for row in rows if row[place] is not None and not is_nan(row[place])]
            known.sort(key=lambda row: to_order(row[place]), reverse=descending)
            rows = known + [row for row in rows if is_nan(row[place])] + [row for row in rows if row[place] is None]
        groups = {
            tuple(
                to_order(row[flow.place(name)]) if row[flow.place(name)] is not None else None for name in self.columns
            )
            for row in rows
        }
        all_differ = len(groups) == len(rows)
        return flow.of(rows, ordered=flow.ordered or all_differ, sorted_output=flow.ordered or all_differ)

    def smaller(self) -> Iterator["Sort"]:
        if len(self.columns) > 1:
            yield replace(self, columns=self.columns[:1], descending=self.descending[:1])


def is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


class Echo:
    """A service that gives back what it is asked."""

    def ask(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows


def ask(service: Echo, rows: pa.RecordBatch) -> pa.RecordBatch:
    """For `map_using_service`."""
    return service.ask(rows)


@dataclass(frozen=True)
class Moved:
    """Steps that only move rows."""

    INPUTS = 1
    kind: str
    key: str

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Moved":
        return cls(random.choice(["rebalance", "keys", "peek", "service"]), choose(random, flows[0].exact_types))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        (stage,) = stages
        if self.kind == "peek":
            return stage.peek(1, name=name)
        if self.kind == "service":
            return stage.map_using_service(Echo, ask, schema=stage.schema, concurrency=2, batch_rows=5, name=name)
        return stage.rebalance(*([self.key] if self.kind == "keys" else []), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        flows[0].require_exact(self.key)
        return flows[0].of(flows[0].rows, ordered=flows[0].ordered and self.kind in ("peek", "service"))


def keys_of(flow: Flow, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The keys of each row."""
    places = [flow.place(name) for name in names]
    return [tuple(row[place] for place in places) for row in flow.rows]
