"""The command doctor: looks at the machine, and says what to do."""

from typing import Annotated

import typer

from jetfast.cli.exit_status import FAILED
from jetfast.cli.health_checks import PROBLEM, check_machine
from jetfast.cli.output import AsJson, command, print_facts, print_json
from jetfast.cli.pipeline_commands import Store


@command
def doctor(
    store: Store = None,
    postgres: Annotated[str | None, typer.Option(metavar="DSN", help="A PostgreSQL server to look at.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at what jetfast needs of this machine, and say what to do; ends with 1 if there is a problem."""
    findings = list(check_machine(store, postgres))
    healthy = all(finding.level != PROBLEM for finding in findings)
    if as_json:
        print_json({"ok": healthy, "findings": findings})
    else:
        print_facts(
            {
                f"{finding.level:8} {finding.check}": [finding.found, f"-> {finding.advice}" if finding.advice else ""]
                for finding in findings
            }
        )
    if not healthy:
        raise typer.Exit(FAILED)
