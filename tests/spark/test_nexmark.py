"""NEXMark's queries give DuckDB's rows on Spark, too."""

from typing import Any

import pytest

from jetfast.spark import SparkCluster
from tests.nexmark.comparison import check_answer


@pytest.mark.spark
def test_queries_give_the_rows_of_their_sql_one_after_the_other_in_one_session(make_spark_session: Any) -> None:
    cluster = SparkCluster(make_spark_session("local[4]"), members=2, start_timeout="5m")
    for name in ("q5", "q13"):
        check_answer(name, cluster)
