"""What `import jetfast` offers: names, their documentation and signatures, and how little is imported for it."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import jetfast as jf

# Names that a user may rely on. A change here is a change for users: say so in the commit.
SIGNATURES = {
    "Pipeline": "(name: 'str' = 'pipeline') -> 'None'",
    "Pipeline.read": "(self, source: 'Source', name: 'str | None' = None) -> 'SourceStage'",
    "Pipeline.plan": "(self, *, member_count: 'int' = 1, workers: 'int' = 1, two_stage: 'bool | None' = None) -> 'Dag'",
    "Pipeline.explain": "(self, *, member_count: 'int' = 1, workers: 'int' = 1, "
    "two_stage: 'bool | None' = None) -> 'str'",
    "SourceStage.with_event_time": "(self, column: 'str | Expression', "
    "policy: 'WatermarkPolicyFactory | None' = None, "
    "idle_timeout: 'Duration' = '60s', *, throttle: 'WatermarkThrottleFactory | None' = None) -> 'SourceStage'",
    "Stage.select": "(self, *columns: 'object', name: 'str | None' = None, on_error: 'OnError' = 'fail') -> 'Stage'",
    "Stage.where": "(self, condition: 'object', *, name: 'str | None' = None, on_error: 'OnError' = 'fail') -> 'Stage'",
    "Stage.filter": "(self, condition: 'object', *, name: 'str | None' = None, "
    "on_error: 'OnError' = 'fail') -> 'Stage'",
    "Stage.with_column": "(self, column: 'str', value: 'object', *, name: 'str | None' = None, "
    "on_error: 'OnError' = 'fail') -> 'Stage'",
    "Stage.with_columns": "(self, columns: 'Mapping[str, object]', *, name: 'str | None' = None, "
    "on_error: 'OnError' = 'fail') -> 'Stage'",
    "Stage.drop": "(self, *columns: 'str', name: 'str | None' = None) -> 'Stage'",
    "Stage.rename": "(self, columns: 'Mapping[str, str]', *, name: 'str | None' = None) -> 'Stage'",
    "Stage.union": "(self, *others: 'Stage', name: 'str | None' = None) -> 'Stage'",
    "Stage.map_batches": "(self, function: 'BatchFunction', *, schema: 'pa.Schema | None' = None, "
    "name: 'str | None' = None) -> 'Stage'",
    "Stage.map_rows": "(self, function: 'Callable[[dict[str, Any]], dict[str, Any] | None]', *, schema: 'pa.Schema', "
    "name: 'str | None' = None) -> 'Stage'",
    "Stage.flat_map": "(self, function: 'Callable[[dict[str, Any]], Iterable[dict[str, Any]]]', *, "
    "schema: 'pa.Schema', name: 'str | None' = None) -> 'Stage'",
    "Stage.explode": "(self, column: 'str', *, name: 'str | None' = None) -> 'Stage'",
    "Stage.map_using_service": "(self, create: 'Callable[[], Any]', "
    "function: 'Callable[[Any, pa.RecordBatch], Any]', *, schema: 'pa.Schema', concurrency: 'int' = 16, "
    "batch_rows: 'int' = 1024, ordered: 'bool' = True, "
    "in_flight: 'str' = 'wait', timeout: 'Duration' = '60s', name: 'str | None' = None) -> 'Stage'",
    "Stage.custom": "(self, supplier: 'Callable[[], Processor]', *, schema: 'pa.Schema', "
    "keys: 'str | Sequence[str]' = (), name: 'str | None' = None) -> 'Stage'",
    "Stage.rebalance": "(self, *keys: 'str', name: 'str | None' = None) -> 'Stage'",
    "Stage.sort": "(self, *by: 'str', descending: 'bool | Sequence[bool]' = False, "
    "name: 'str | None' = None) -> 'Stage'",
    "Stage.peek": "(self, limit: 'int' = 10, *, name: 'str | None' = None) -> 'Stage'",
    "Stage.group_by": "(self, *keys: 'object') -> 'GroupedStage'",
    "Stage.window": "(self, window: 'AnyWindow') -> 'WindowedStage'",
    "Stage.drop_duplicates": "(self, *columns: 'object', horizon: 'Duration | None' = None, "
    "name: 'str | None' = None) -> 'LateRowsStage'",
    "Stage.distinct": "(self, *columns: 'object', name: 'str | None' = None) -> 'Stage'",
    "Stage.hash_join": "(self, table: 'Stage', *, on: 'KeyColumns' = None, left_on: 'KeyColumns' = None, "
    "right_on: 'KeyColumns' = None, how: 'str' = 'inner', suffix: 'str' = '_right', "
    "name: 'str | None' = None) -> 'Stage'",
    "Stage.window_join": "(self, other: 'Stage', window: 'AnyWindow', *, on: 'KeyColumns' = None, "
    "left_on: 'KeyColumns' = None, right_on: 'KeyColumns' = None, how: 'str' = 'inner', suffix: 'str' = '_right', "
    "name: 'str | None' = None) -> 'JoinStage'",
    "Stage.interval_join": "(self, other: 'Stage', *, lower: 'Duration', upper: 'Duration', on: 'KeyColumns' = None, "
    "left_on: 'KeyColumns' = None, right_on: 'KeyColumns' = None, how: 'str' = 'inner', time: 'str' = 'event_time', "
    "suffix: 'str' = '_right', name: 'str | None' = None) -> 'JoinStage'",
    "Stage.asof_join": "(self, other: 'Stage', *, tolerance: 'Duration | None' = None, on: 'KeyColumns' = None, "
    "left_on: 'KeyColumns' = None, right_on: 'KeyColumns' = None, how: 'str' = 'left', suffix: 'str' = '_right', "
    "name: 'str | None' = None) -> 'JoinStage'",
    "Stage.write": "(self, sink: 'Sink', name: 'str | None' = None) -> 'None'",
    "Stage.collect": "(self, name: 'str' = 'result') -> 'None'",
    "GroupedStage.window": "(self, window: 'AnyWindow') -> 'WindowedStage'",
    "GroupedStage.cogroup": "(self, *others: 'GroupedStage') -> 'CogroupedStage'",
    "GroupedStage.rolling_agg": "(self, *, ttl: 'Duration | None' = None, name: 'str | None' = None, "
    "**aggregates: 'Aggregate') -> 'LateRowsStage'",
    "GroupedStage.map_stateful": "(self, function: 'StatefulFunction', *, state: 'pa.DataType', schema: 'pa.Schema', "
    "ttl: 'Duration | None' = None, on_evict: 'EvictFunction | None' = None, "
    "name: 'str | None' = None) -> 'LateRowsStage'",
    "CogroupedStage.window": "(self, window: 'AnyWindow') -> 'CogroupedWindow'",
    "CogroupedWindow.agg": "(self, *aggregates: 'Mapping[str, Aggregate]', "
    "name: 'str | None' = None) -> 'CogroupStage'",
    "CogroupStage.late_rows_of": "(self, number: 'int') -> 'Stage'",
    "WindowedStage.agg": "(self, *, name: 'str | None' = None, **aggregates: 'Aggregate') -> 'AggregateStage'",
    "Expression.alias": "(self, name: 'str') -> 'Expression'",
    "Expression.between": "(self, lower: 'object', upper: 'object') -> 'Expression'",
    "Expression.cast": "(self, data_type: 'pa.DataType | str') -> 'Expression'",
    "Expression.is_nan": "(self) -> 'Expression'",
    "Expression.is_null": "(self) -> 'Expression'",
    "Expression.is_valid": "(self) -> 'Expression'",
    "Expression.isin": "(self, *values: 'object') -> 'Expression'",
    "col": "(name: 'str') -> 'Expression'",
    "lit": "(value: 'object') -> 'Expression'",
    "when": "(condition: 'object', value: 'object') -> 'CaseBuilder'",
    "coalesce": "(*values: 'object') -> 'Expression'",
    "count": "(column: Any = None) -> jetfast.core.aggregate.Aggregate",
    "sum": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "mean": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "min": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "max": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "var_samp": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "var_pop": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "stddev_samp": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "stddev_pop": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "first": "(column: Any, *, ignore_nulls: bool = False) -> jetfast.core.aggregate.Aggregate",
    "last": "(column: Any, *, ignore_nulls: bool = False) -> jetfast.core.aggregate.Aggregate",
    "top_n": "(column: Any, n: int, *, by: Any = None) -> jetfast.core.aggregate.Aggregate",
    "bottom_n": "(column: Any, n: int, *, by: Any = None) -> jetfast.core.aggregate.Aggregate",
    "count_distinct": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "approx_count_distinct": "(column: Any, error: float = 0.05) -> jetfast.core.aggregate.Aggregate",
    "quantile": "(column: Any, q: float, error: float = 0.01) -> jetfast.core.aggregate.Aggregate",
    "quantiles": "(column: Any, q: collections.abc.Sequence[float], error: float = 0.01) "
    "-> jetfast.core.aggregate.Aggregate",
    "linear_trend": "(y: Any, x: Any = None) -> jetfast.core.aggregate.Aggregate",
    "collect_list": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "collect_set": "(column: Any) -> jetfast.core.aggregate.Aggregate",
    "concat": "(column: Any, separator: str = '') -> jetfast.core.aggregate.Aggregate",
    "BatchAggregate.over": "(self, *columns: Any) -> jetfast.core.aggregate.Aggregate",
    "tumbling": "(size: str | datetime.timedelta, *, "
    "offset: str | datetime.timedelta = '0s') -> jetfast.core.windows.Window",
    "sliding": "(size: str | datetime.timedelta, slide: str | datetime.timedelta, *, "
    "offset: str | datetime.timedelta = '0s') -> jetfast.core.windows.Window",
    "session": "(timeout: str | datetime.timedelta) -> jetfast.core.windows.SessionWindow",
    "watermarks.fixed_lag": "(lag: str | datetime.timedelta) -> jetfast.core.watermark_policies.FixedLag",
    "watermarks.limiting_lag_and_delay": "(lag: str | datetime.timedelta, max_delay: str | datetime.timedelta) "
    "-> jetfast.core.watermark_policies.LimitingLagAndDelay",
    "watermarks.limiting_lag_and_lull": "(lag: str | datetime.timedelta, max_lull: str | datetime.timedelta) "
    "-> jetfast.core.watermark_policies.LimitingLagAndLull",
    "watermarks.limiting_timestamp_and_wall_clock_lag": "(timestamp_lag: str | datetime.timedelta, "
    "wall_clock_lag: str | datetime.timedelta) -> jetfast.core.watermark_policies.LimitingTimestampAndWallClockLag",
    "watermarks.real_time_lag": "(lag: str | datetime.timedelta) -> jetfast.core.watermark_policies.RealTimeLag",
    "watermarks.emit_by_frame": "(window: jetfast.core.windows.Window) -> jetfast.core.throttling.EmitByFrame",
    "watermarks.emit_by_min_step": "(step: str | datetime.timedelta) -> jetfast.core.throttling.EmitByMinStep",
    "watermarks.no_throttling": "() -> jetfast.core.throttling.NoThrottling",
    "watermarks.WatermarkCoalescer.observe_watermark": "(self, input, value)",
    "watermarks.WatermarkCoalescer.observe_rows": "(self, input)",
    "watermarks.WatermarkCoalescer.observe_idle": "(self, input)",
    "watermarks.WatermarkCoalescer.observe_active": "(self, input)",
    "watermarks.WatermarkCoalescer.observe_done": "(self, input)",
    "Job.explain_watermark": "(self) -> jetfast.control.watermark_explanation.WatermarkExplanation",
    "testing.scripted": "(partitions: collections.abc.Mapping[str, collections.abc.Sequence[typing.Any]] | "
    "collections.abc.Sequence[typing.Any], *, schema: pyarrow.lib.Schema | None = None, name: str = 'scripted') "
    "-> jetfast.connectors.memory.MemorySource",
    "testing.silence": "(duration: str | datetime.timedelta) -> jetfast.connectors.memory.Silence",
    "testing.check_golden": "(rows: Any, path: str | pathlib.Path, *, ordered: bool = False) -> None",
    "testing.VirtualClock": "(start: str = '2024-01-01T00:00:00') -> None",
}

STAGE_CLASSES = {
    "stage": ("SourceStage", "SideStage", "LateRowsStage", "JoinStage"),
    "grouped": ("AggregateStage", "GroupedStage", "WindowedStage"),
    "cogroup": ("CogroupedStage", "CogroupedWindow", "CogroupStage"),
}
"""By module of jetfast.api: what steps return."""


def stage_classes() -> dict[str, type]:
    return {
        name: getattr(import_module(f"jetfast.api.{module}"), name)
        for module, names in STAGE_CLASSES.items()
        for name in names
    }


def resolve(path: str) -> object:
    first, *rest = path.split(".")
    value: object = stage_classes().get(first) or getattr(jf, first)
    for name in rest:
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("path", SIGNATURES)
def test_signatures_are_what_users_rely_on(path: str) -> None:
    assert str(inspect.signature(resolve(path))) == SIGNATURES[path]  # type: ignore[arg-type]


def test_all_names_what_there_is() -> None:
    assert len(jf.__all__) == len(set(jf.__all__))
    for name in jf.__all__:
        assert getattr(jf, name) is not None
    assert set(dir(jf)) == {*jf.__all__, "spark", "testing"}, "completion shows nothing else"
    with pytest.raises(AttributeError, match="module 'jetfast' has no attribute 'pipeline_of'"):
        _ = jf.pipeline_of  # type: ignore[attr-defined]
    assert jf.avg is jf.mean
    assert jf.variance is jf.var_samp
    assert jf.stddev is jf.stddev_samp


def test_parts_that_few_need_are_there_when_asked_for() -> None:
    names = modules_after("import jetfast as jf; jf.spark.SparkCluster; jf.testing.verify_processor")
    assert {"jetfast.spark", "jetfast.testing"} <= names


def public_members(value: type) -> list[tuple[str, object]]:
    return [(name, member) for name, member in inspect.getmembers(value) if not name.startswith("_")]


def test_every_public_name_is_documented() -> None:
    undocumented = []
    for name in jf.__all__:
        value = getattr(jf, name)
        if name == "__version__":
            continue
        if not inspect.getdoc(value):
            undocumented.append(name)
        if inspect.isclass(value) and name != "Guarantee":
            undocumented += [f"{name}.{m}" for m, member in public_members(value) if not inspect.getdoc(member)]
    for name, value in stage_classes().items():
        undocumented += [f"{name}.{m}" for m, member in public_members(value) if not inspect.getdoc(member)]
    assert undocumented == []


def modules_after(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_brings_in_nothing_heavy() -> None:
    # The 0.2 s that an import may take are kept by what it leaves out: times would depend on the machine.
    heavy = {
        "pyspark", "pandas", "polars", "duckdb", "pyarrow.acero", "pyarrow.dataset", "pyarrow.parquet", "rich", "typer",
        "cloudpickle", "msgspec", "jetfast.spark", "jetfast.testing", "jetfast.cli",
    }  # fmt: skip
    assert modules_after("import jetfast") & heavy == set()


def test_import_alone_does_not_even_need_arrow() -> None:
    assert {name for name in modules_after("import jetfast") if name.startswith(("pyarrow", "numpy"))} == set()


def test_building_a_pipeline_imports_no_cluster_and_no_spark() -> None:
    statement = (
        "import jetfast as jf\np = jf.Pipeline()\np.read(jf.memory({'a': [1]})).where(jf.col('a') > 0).collect()"
    )
    assert modules_after(statement) & {"pyspark", "jetfast.spark", "jetfast.clusters.local", "rich", "typer"} == set()
