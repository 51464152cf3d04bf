"""Every Arrow type through every operator: it works, or it is refused by column name as the pipeline is built."""

import pytest

from tests.arrow_types.matrix import END, PAGE, START, lines_of, try_formats, try_uses
from tests.arrow_types.samples import SAMPLES, Sample

BY_NAME = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


@BY_NAME
def test_a_type_works_or_is_refused_when_the_pipeline_is_built(sample: Sample) -> None:
    assert try_uses(sample).wrong == []


@BY_NAME
def test_files_of_a_type_are_read_as_they_were_written(sample: Sample, tmp_path) -> None:
    assert try_formats(sample, tmp_path).wrong == []


@BY_NAME
def test_the_page_says_which_operators_take_a_type(sample: Sample) -> None:
    lines = PAGE.read_text().split(START)[1].split(END)[0].splitlines(keepends=True)
    assert lines_of(sample) in lines, "python -m tests.arrow_types.matrix rewrites the page"


def test_the_page_has_no_other_types() -> None:
    lines = PAGE.read_text().split(START)[1].split(END)[0].strip().splitlines()
    assert len(lines) == len(SAMPLES) + 2
