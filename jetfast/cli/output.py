"""What commands print: text for people, or one JSON object for programs; errors, and the status that goes with them."""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ParamSpec

import msgspec
import typer
from rich.console import Console

from jetfast.cli.exit_status import INTERRUPTED, status_of
from jetfast.connectors.away import is_away
from jetfast.errors import JetfastError
from jetfast.types import format_duration, printable

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

_Parameters = ParamSpec("_Parameters")


def command(function: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """Decorate a command that has an `as_json` parameter: errors are printed, and become its exit status."""

    @functools.wraps(function)
    def run(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> None:
        try:
            function(*arguments, **options)
        except (JetfastError, TypeError, OSError) as error:
            if isinstance(error, TypeError) and not _is_about_a_setting(error):
                raise
            if isinstance(error, OSError) and not is_away(error):
                raise
            print_error(error, as_json=bool(options.get("as_json")))
            raise typer.Exit(status_of(error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error

    return run


def _is_about_a_setting(error: TypeError) -> bool:
    """Does it come from a check of jetfast, and not from a bug?"""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = "" if traceback is None else traceback.tb_frame.f_globals.get("__name__", "")
    return module.startswith("jetfast.") and "must be" in str(error)


def print_json(value: Any) -> None:
    """Print one object on a line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_error(error: Exception, *, as_json: bool) -> None:
    """Print what went wrong: on standard error, and for programs on standard output."""
    kind = type(error).__name__
    if as_json:
        print_json({"error": {"kind": kind, "message": str(error)}})
    else:
        sys.stderr.write(f"jetfast: {error}\n")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below headings; columns of numbers are set to the right."""
    lines = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [
        all(text[:1].isdigit() or text in ("", "-") for text in column[1:]) for column in zip(*lines, strict=True)
    ]
    console = _console()
    for number, line in enumerate(lines):
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        console.print("  ".join(cells).rstrip(), style="bold" if number == 0 else None, soft_wrap=True)


def print_facts(facts: Mapping[str, str | Sequence[str]]) -> None:
    """Print a name and a text on each line; several texts under each other; those without any are left out."""
    width = max(map(len, facts), default=0)
    lines = []
    for name, texts in facts.items():
        for place, text in enumerate([texts] if isinstance(texts, str) else texts):
            if text:
                lines.append(f"{name if place == 0 else '':{width}}  {printable(text)}")
    _console().print("\n".join(lines), soft_wrap=True)


def describe_seconds(seconds: float) -> str:
    """Return 4.2 as "4.2s", 3725.2 as "1h 2m 5s"."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    return format_duration(int(seconds) * 1_000_000)


def describe_moment(at_us: int) -> str:
    """Return a wall-clock time (microseconds since 1970) as text in UTC."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)
