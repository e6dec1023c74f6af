"""The root command. Commands are listed here by name and imported only when they are called."""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from planner.cli.output import guarded, reader_is_gone, show
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error

# Objects; Python's default is 700. Almost all objects are in no cycle, and are freed without a collection.
_COLLECT_AFTER = 50_000


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
    "drift": CommandEntry("drift", "Show what changed outside the topology since it was applied."),
    "destroy": CommandEntry(
        "destroy", "Stop the jobs, and delete what the topology owns with on_remove: delete."
    ),
    "import": CommandEntry(
        "import_", "Write live clusters, or what MirrorMaker 2 or Replicator run by, as a topology."
    ),
    "status": CommandEntry("status", "Show jobs, flows, lag, rates and latency, read from the clusters."),
    "drill": CommandEntry(
        "drill", "Rehearse the loss of each cluster on lab clusters, and report RTO and RPO."
    ),
    "offsets": CommandEntry(
        "offsets", "Show a consumer group's offsets at the source and at the destination of a flow."
    ),
    "locate": CommandEntry(
        "locate", "Find a source record at the destination of a flow; --reverse: the other way."
    ),
    "read": CommandEntry("read", "Show records with their provenance, or the topics of a cluster."),
    "clients": CommandEntry(
        "clients", "Show which clients produce to each topic, and which groups consume from it."
    ),
    "doctor": CommandEntry(
        "doctor", "Show what a live cluster can do: versions, features, rights, clock, round trip."
    ),
    "pause": CommandEntry("pause", "Stop copying a flow; repl resume continues at the same offsets."),
    "resume": CommandEntry(
        "resume", "Resume a paused flow; --accept-loss: also partitions that stopped over lost records."
    ),
    "standby": CommandEntry(
        "standby", "Watch a job from this machine, and start it here when its own machine is lost."
    ),
    "failover": CommandEntry(
        "failover", "Fail over from a lost cluster: end its flows and move their consumer groups."
    ),
    "promote": CommandEntry(
        "promote", "Promote a flow: copy the rest, stop copying, and make the destination writable."
    ),
    "failback": CommandEntry(
        "failback", "Copy back what was written after a failover; --switch: make the original flows active."
    ),
    "salvage": CommandEntry(
        "salvage", "List, export or replay records of the old primary that never reached the destination."
    ),
    "restore": CommandEntry(
        "restore", "Restore a backup in raw files into a cluster, with the offsets of consumer groups."
    ),
    "try": CommandEntry(
        "try_", "Show what a flow's transform makes of records of its source; nothing is written."
    ),
    "verify": CommandEntry("verify", "Compare both sides of a flow record by record, on Spark."),
    "ui": CommandEntry("ui", "Serve live pages for a browser: is it safe to fail over, and if not, why."),
    "history": CommandEntry("history", "Show who applied what, when, and how it ended."),
    "lab": CommandEntry("lab", "Run real Kafka clusters on this machine, for trying things and for tests."),
    "schema": CommandEntry("schema", "Print the JSON Schema of the topology, for editors."),
    "completion": CommandEntry("completion", "Print a completion script for bash, zsh or fish."),
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
    gc.set_threshold(_COLLECT_AFTER)
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
        reader_is_gone()
        return int(ExitCode.DONE)
    except Exception as wrong:  # noqa: BLE001 - the outermost edge: the traceback is kept, one line is shown
        show([_unexpected(wrong)])
        return int(ExitCode.ERROR)
    return int(outcome) if isinstance(outcome, int) else int(ExitCode.DONE)


def _unexpected(wrong: Exception) -> Diagnostic:
    """Writes the traceback of an unexpected exception to a file, and returns the line for the user."""
    from planner.workflows.interaction import traceback_reporter
    from runtime.contract.client.secrets import redacted

    folder = Path(os.environ.get("REPL_HOME") or ".repl") / "errors"
    report = traceback_reporter(folder, f"command-{os.getpid()}", lambda text: click.echo(text, err=True))
    where = report(wrong)
    text = redacted(str(wrong).splitlines()[0]) if str(wrong) else "no reason given"
    return error(
        f"unexpected {type(wrong).__name__}: {text}; {where}", "this is a mistake in repl: report it"
    )
