"""Rows printed, and rows handed back to the submitter."""

import io

import pyarrow as pa
import pytest

from jetfast.connectors.arrow import collect
from jetfast.connectors.console import ConsoleSink, console
from jetfast.core.batch import Batch
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.processors.peek import Peek
from tests.connectors.reading import context, write_all

TABLE = pa.table(
    {"name": ["a", None, "long\nline"], "number": [1, 22, 333], "time": pa.array([0, 1, None], pa.timestamp("us"))}
)


def printed(limit: int | None, *pieces: pa.Table) -> str:
    stream = io.StringIO()
    write_all(ConsoleSink(limit, stream), TABLE.schema, pieces)
    return stream.getvalue()


def test_rows_are_printed_in_columns_under_one_heading() -> None:
    assert printed(None, TABLE.slice(0, 2), TABLE.slice(2)) == (
        "name  number  time\n"
        "----  ------  --------------------------\n"
        "a          1  1970-01-01 00:00:00.000000\n"
        "null      22  1970-01-01 00:00:00.000001\n"
        "long\\nline     333  null\n"
        "3 rows\n"
    )


def test_rows_beyond_the_limit_are_counted() -> None:
    lines = printed(1, TABLE, TABLE).splitlines()
    assert len(lines) == 4
    assert lines[-1] == "6 rows, 5 of them not shown"


def test_no_rows_still_show_the_columns() -> None:
    assert printed(10).splitlines()[0] == "name  number  time"


def test_the_console_has_one_single_writer() -> None:
    assert console().parallelism_one
    with pytest.raises(JobDefinitionError, match="limit must not be negative"):
        console(-1)


def test_collected_rows_are_delivered_under_the_name_of_the_step() -> None:
    delivered: list[tuple[str, pa.RecordBatch]] = []
    writer = collect().open_writer(
        TABLE.schema, context(deliver=lambda name, rows, publication: delivered.append((name, rows)))
    )
    writer.write(Batch.from_arrow(TABLE.to_batches()[0]))
    writer.finish()
    assert [(name, rows.to_pylist()) for name, rows in delivered] == [("tested", TABLE.to_pylist())]


def test_collect_needs_a_way_back() -> None:
    with pytest.raises(JobFailedError, match="tested: this cluster takes no rows back"):
        collect().open_writer(TABLE.schema, context())


HOSTILE = {"a\x1b[2J": ["\x1b]0;title\x07", "line\nnext\r\x9b31m"], "b": ["\u202eback", "plain é 水"]}
"""Clears the screen, sets the title, sends colours, turns text around."""


def test_control_characters_are_shown_and_not_sent() -> None:
    stream = io.StringIO()
    write_all(ConsoleSink(10, stream), pa.table(HOSTILE).schema, [pa.table(HOSTILE)])
    text = stream.getvalue()
    assert all(line.isprintable() for line in text.splitlines())
    assert r"a\x1b[2J" in text
    assert r"\x1b]0;title\x07" in text
    assert r"line\nnext\r\x9b31m" in text
    assert r"\u202eback" in text
    assert "plain é 水" in text


def test_peek_shows_control_characters_and_does_not_send_them() -> None:
    stream = io.StringIO()
    peek = Peek(10, stream)
    peek.open(context())
    peek.process(0, Batch.from_arrow(pa.table(HOSTILE).to_batches()[0]))
    assert all(line.isprintable() for line in stream.getvalue().splitlines())
    assert r"a\x1b[2J=\x1b]0;title\x07, b=\u202eback" in stream.getvalue()
    assert stream.getvalue().count("\n") == 2
