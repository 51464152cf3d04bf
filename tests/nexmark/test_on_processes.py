"""NEXMark's queries give DuckDB's rows on processes, too."""

import pytest

from jetfast.clusters.processes import ProcessCluster
from tests.nexmark.comparison import check_answer


@pytest.mark.services
@pytest.mark.parametrize("name", ["q6", "q10"])
def test_a_query_gives_the_rows_of_its_sql_on_processes(name: str) -> None:
    check_answer(name, ProcessCluster(members=2, workers=2))
