"""jetfast: a stream engine for Python and Spark.

    import jetfast as jf
    from jetfast import col

    p = jf.Pipeline("delays")
    flights = p.read(jf.files("flights/*.parquet"), name="flights").with_event_time(
        "scheduled", jf.watermarks.fixed_lag("2h"), idle_timeout="60s")
    delays = (flights.where(col("dep_delay").is_valid())
              .group_by("carrier", "origin").window(jf.sliding("24h", "1h"))
              .agg(flights=jf.count(), mean_delay=jf.mean("dep_delay"), name="delays"))
    delays.write(jf.files("out/windows", format="parquet"))
    job = jf.LocalCluster(workers=2).submit(p)
    job.wait()

Names are imported at first use, so that `import jetfast` alone is quick; so are `jetfast.spark` and
`jetfast.testing`.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jetfast import errors

if TYPE_CHECKING:
    from jetfast.api import snapshots, watermarks
    from jetfast.api.expressions import Expression, coalesce, col, lit, when
    from jetfast.api.pipeline import Pipeline
    from jetfast.api.stage import Stage
    from jetfast.clusters.local import LocalCluster
    from jetfast.clusters.processes import ProcessCluster
    from jetfast.connectors.arrow import collect
    from jetfast.connectors.console import console
    from jetfast.connectors.files import files
    from jetfast.connectors.generator import generator
    from jetfast.connectors.memory import memory
    from jetfast.connectors.postgres import postgres
    from jetfast.control.job import Job
    from jetfast.control.job_status import JobStatus
    from jetfast.core.aggregate_functions import (
        aggregate,
        approx_count_distinct,
        avg,
        bottom_n,
        collect_list,
        collect_set,
        concat,
        count,
        count_distinct,
        first,
        last,
        linear_trend,
        max,
        mean,
        min,
        quantile,
        quantiles,
        stddev,
        stddev_pop,
        stddev_samp,
        sum,
        top_n,
        var_pop,
        var_samp,
        variance,
    )
    from jetfast.core.batch_aggregate import BatchAggregate
    from jetfast.core.guarantee import Guarantee
    from jetfast.core.windows import session, sliding, tumbling
    from jetfast.kernels.partitioning import assign_partitions

__version__ = "0.1.0"

_MODULE_OF = {
    "BatchAggregate": "jetfast.core.batch_aggregate",
    "Expression": "jetfast.api.expressions",
    "Guarantee": "jetfast.core.guarantee",
    "Job": "jetfast.control.job",
    "JobStatus": "jetfast.control.job_status",
    "LocalCluster": "jetfast.clusters.local",
    "Pipeline": "jetfast.api.pipeline",
    "ProcessCluster": "jetfast.clusters.processes",
    "Stage": "jetfast.api.stage",
    "aggregate": "jetfast.core.aggregate_functions",
    "approx_count_distinct": "jetfast.core.aggregate_functions",
    "assign_partitions": "jetfast.kernels.partitioning",
    "avg": "jetfast.core.aggregate_functions",
    "bottom_n": "jetfast.core.aggregate_functions",
    "coalesce": "jetfast.api.expressions",
    "col": "jetfast.api.expressions",
    "collect": "jetfast.connectors.arrow",
    "collect_list": "jetfast.core.aggregate_functions",
    "collect_set": "jetfast.core.aggregate_functions",
    "concat": "jetfast.core.aggregate_functions",
    "console": "jetfast.connectors.console",
    "count": "jetfast.core.aggregate_functions",
    "count_distinct": "jetfast.core.aggregate_functions",
    "files": "jetfast.connectors.files",
    "first": "jetfast.core.aggregate_functions",
    "generator": "jetfast.connectors.generator",
    "last": "jetfast.core.aggregate_functions",
    "linear_trend": "jetfast.core.aggregate_functions",
    "lit": "jetfast.api.expressions",
    "max": "jetfast.core.aggregate_functions",
    "mean": "jetfast.core.aggregate_functions",
    "memory": "jetfast.connectors.memory",
    "min": "jetfast.core.aggregate_functions",
    "postgres": "jetfast.connectors.postgres",
    "quantile": "jetfast.core.aggregate_functions",
    "quantiles": "jetfast.core.aggregate_functions",
    "session": "jetfast.core.windows",
    "sliding": "jetfast.core.windows",
    "stddev": "jetfast.core.aggregate_functions",
    "stddev_pop": "jetfast.core.aggregate_functions",
    "stddev_samp": "jetfast.core.aggregate_functions",
    "sum": "jetfast.core.aggregate_functions",
    "top_n": "jetfast.core.aggregate_functions",
    "tumbling": "jetfast.core.windows",
    "var_pop": "jetfast.core.aggregate_functions",
    "var_samp": "jetfast.core.aggregate_functions",
    "variance": "jetfast.core.aggregate_functions",
    "when": "jetfast.api.expressions",
}

__all__ = [  # noqa: RUF022  # by meaning
    "Pipeline", "Stage", "col", "lit", "when", "coalesce", "Expression",
    "count", "sum", "mean", "avg", "min", "max",
    "variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop",
    "first", "last", "top_n", "bottom_n", "count_distinct", "approx_count_distinct", "quantile", "quantiles",
    "linear_trend", "collect_list", "collect_set", "concat", "aggregate", "BatchAggregate",
    "tumbling", "sliding", "session", "watermarks",
    "files", "postgres", "memory", "generator", "console", "collect",
    "LocalCluster", "ProcessCluster", "Job", "JobStatus", "Guarantee", "snapshots", "errors", "assign_partitions",
    "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("snapshots", "watermarks"):
        value: Any = import_module(f"jetfast.api.{name}")
    elif name in ("spark", "testing"):
        value = import_module(f"jetfast.{name}")
    elif name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module 'jetfast' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "spark", "testing"])
