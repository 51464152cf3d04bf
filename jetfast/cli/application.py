"""The commands, under their names: the Typer application."""

from typing import Annotated

import typer

from jetfast import __version__
from jetfast.cli import doctor_command, job_commands, nexmark_command, pipeline_commands, snapshot_commands

app = typer.Typer(
    name="jetfast",
    help="Run stream pipelines, look at running jobs, and steer them. Exit status: docs/command_line.md.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
snapshot = typer.Typer(help="Snapshots under names of their own, from which jobs can start.", no_args_is_help=True)

app.command()(pipeline_commands.run)
app.command()(job_commands.jobs)
app.command()(job_commands.status)
app.command()(job_commands.cancel)
app.command()(job_commands.suspend)
app.command()(job_commands.resume)
app.command()(job_commands.restart)
app.add_typer(snapshot, name="snapshot")
app.command()(doctor_command.doctor)
app.command()(nexmark_command.nexmark)
snapshot.command()(snapshot_commands.save)
snapshot.command(name="list")(snapshot_commands.list_snapshots)
snapshot.command()(pipeline_commands.restore)
snapshot.command()(snapshot_commands.delete)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jetfast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run stream pipelines, look at running jobs, and steer them."""
