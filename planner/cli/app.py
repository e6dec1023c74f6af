"""The root command. Commands are listed here by name and imported only when they are called."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from planner.cli.terminal import guarded, say
from planner.model.diagnostic import Diagnostic, ExitCode, Failure


class CommandEntry(NamedTuple):
    module: str
    help: str


# One line for each command: the module below planner.cli that holds `command`, and its line in the help.
COMMANDS: dict[str, CommandEntry] = {
    "init": CommandEntry("init", "Write a commented starter topology."),
    "validate": CommandEntry("validate", "Check a topology offline: no cluster, no credentials needed."),
    "plan": CommandEntry("plan", "Show what must change for the clusters to match the topology."),
    "apply": CommandEntry("apply", "Make the clusters match the topology, or execute a saved plan exactly."),
    "show": CommandEntry("show", "Show a saved plan again."),
    "drift": CommandEntry("drift", "What changed outside the topology since it was applied."),
    "destroy": CommandEntry(
        "destroy", "Stop the jobs, and delete what the topology owns with on_remove: delete."
    ),
    "import": CommandEntry(
        "import_", "Write a live cluster, or a MirrorMaker 2 configuration, as a topology."
    ),
    "status": CommandEntry("status", "Jobs, flows, lag, rates and latency, read from the data itself."),
    "offsets": CommandEntry("offsets", "Where a consumer group stands at both sides of a flow."),
    "locate": CommandEntry("locate", "Where one record is on the other side of a flow."),
    "read": CommandEntry("read", "Records with their provenance, and what a cluster holds."),
    "clients": CommandEntry("clients", "Which groups and clients produce to and consume from each topic."),
    "pause": CommandEntry("pause", "Stop copying a flow, to go on later where it stood."),
    "resume": CommandEntry("resume", "Let a paused flow go on, or one that stopped over lost records."),
    "failover": CommandEntry("failover", "Give a cluster up: its flows end with what arrived."),
    "promote": CommandEntry("promote", "Make a flow's destination the truth, once all of it is copied."),
    "failback": CommandEntry("failback", "Bring home what the other side wrote; --switch: run as before."),
    "salvage": CommandEntry("salvage", "What the old primary holds and never sent."),
    "verify": CommandEntry("verify", "Compare both sides of a flow record by record, on Spark."),
    "history": CommandEntry("history", "Who applied what, when, and how it ended."),
    "lab": CommandEntry("lab", "Real local Kafka clusters for trying things and for tests."),
    "schema": CommandEntry("schema", "The JSON Schema of the topology, for editors."),
    "completion": CommandEntry("completion", "Completion for bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """Lists every command without importing any, so that --help and completion stay fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        loaded = importlib.import_module(f"planner.cli.{entry.module}").command
        assert isinstance(loaded, click.Command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="repl", prog_name="repl")
def root() -> None:
    """Plan and apply Kafka replication between datacenters, from one reviewed topology."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit by the contract; no traceback reaches a user."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    with guarded():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        outcome = root.main(args=arguments, prog_name="repl", standalone_mode=False)
    except Failure as failure:
        show(failure.diagnostics)
        return int(failure.exit_code)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        wrong.show(sys.stderr)
        return int(ExitCode.ERROR)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nInterrupted.", err=True)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (repl … | head): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except Exception as wrong:  # noqa: BLE001 - the outermost edge: the traceback is kept, and one line is shown
        from planner.cli.unexpected import unexpected

        show([unexpected(wrong)])
        return int(ExitCode.ERROR)
    return int(outcome) if isinstance(outcome, int) else int(ExitCode.DONE)


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Diagnostics to stderr, each with its severity."""
    colours = {"error": "red", "warning": "yellow", "note": "blue"}
    for one in diagnostics:
        say(str(one), label=f"{one.severity.value}:", colour=colours[one.severity.value], bold=True, err=True)
