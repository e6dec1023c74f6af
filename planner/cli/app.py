"""The root command. Commands are listed here by name and imported only when they are called."""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import NamedTuple

import click

from planner.cli.output import guarded, show, unwritten
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error
from runtime.contract.extras import DISTRIBUTION, extra_of, missing_extra

# Objects; Python's default is 700. Almost all objects are in no cycle, and are freed without a collection.
_COLLECT_AFTER = 50_000


class CommandEntry(NamedTuple):
    module: str
    help: str


# Below each title its commands, most used first: the module below planner.cli that holds `command`, and its
# line in the help.
GROUPS: dict[str, dict[str, CommandEntry]] = {
    "Plan and apply": {
        "plan": CommandEntry("plans", "Show what must change for the clusters to match the topology."),
        "apply": CommandEntry("plans", "Make the clusters match the topology, or execute a saved plan."),
        "validate": CommandEntry("plans", "Check a topology offline: no cluster, no credentials needed."),
        "init": CommandEntry("init", "Write a topology: of your clusters, or a commented starter."),
        "fmt": CommandEntry("plans", "Rewrite a topology's files in one order and style."),
        "import": CommandEntry("import_", "Write live clusters, or what another tool keeps, as a topology."),
        "drift": CommandEntry("plans", "Show what changed outside the topology since it was applied."),
        "show": CommandEntry("plans", "Show a saved plan again."),
        "destroy": CommandEntry("plans", "Stop the jobs, and delete what has on_remove: delete."),
    },
    "Operate": {
        "status": CommandEntry("status", "Show jobs, flows, lag, rates and latency of what runs."),
        "ui": CommandEntry("operation", "Serve live pages for a browser: is it safe to fail over?"),
        "pause": CommandEntry("operation", "Stop copying a flow; resume continues at the same offsets."),
        "resume": CommandEntry("operation", "Continue a paused flow, or one that stopped over lost records."),
        "history": CommandEntry("operation", "Show who applied what, when, and how it ended."),
        "standby": CommandEntry("operation", "Take a job over on this machine when its own machine is lost."),
        "jobs": CommandEntry("jobs", "Show the rights that jobs need on Kubernetes."),
    },
    "Disaster recovery": {
        "failover": CommandEntry(
            "recovery", "End the flows of a lost cluster and move their consumer groups."
        ),
        "failback": CommandEntry(
            "recovery", "Copy back what was written after a failover, then switch back."
        ),
        "promote": CommandEntry("recovery", "Copy the rest, stop a flow, and make its destination writable."),
        "cutover": CommandEntry("recovery", "Move a wave of clients to the destination for good."),
        "drill": CommandEntry("drill", "Rehearse the loss of each cluster, and report RTO and RPO."),
        "salvage": CommandEntry(
            "recovery", "List, export or replay records that never left the old primary."
        ),
        "restore": CommandEntry("recovery", "Restore a backup into a cluster, with consumer group offsets."),
    },
    "Inspect": {
        "verify": CommandEntry("inspection", "Compare both sides of a flow record by record, on Spark."),
        "read": CommandEntry("inspection", "Show records with their provenance, or the topics of a cluster."),
        "offsets": CommandEntry("inspection", "Show a consumer group's offsets at both sides of a flow."),
        "locate": CommandEntry("inspection", "Find a record of one side of a flow at the other side."),
        "clients": CommandEntry(
            "inspection", "Show which clients write each topic, and which groups read it."
        ),
        "try": CommandEntry("inspection", "Show what a flow's transform makes of records; write nothing."),
        "doctor": CommandEntry(
            "inspection", "Show what a live cluster can do: versions, rights, round trip."
        ),
    },
    "Tools": {
        "explain": CommandEntry("tools", "Explain a key of the topology: type, default, example."),
        "schema": CommandEntry("tools", "Print the JSON Schema of the topology, for editors."),
        "completion": CommandEntry("tools", "Print a completion script for bash, zsh or fish."),
    },
    "Lab": {
        "lab": CommandEntry("lab", "Run real clusters of Kafka and Spark on this machine."),
    },
}
COMMANDS: dict[str, CommandEntry] = {
    name: entry for commands in GROUPS.values() for name, entry in commands.items()
}


class LazyGroup(click.Group):
    """Lists every command without importing any, so that --help and completion stay fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"planner.cli.{entry.module}")
        loaded = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        assert isinstance(loaded, click.Command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, COMMANDS))  # the second column begins at one place in all groups
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), entry.help) for name, entry in commands.items()])


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name=DISTRIBUTION, prog_name="repl")
@click.pass_context
def root(context: click.Context) -> None:
    """Plan and apply Kafka replication between datacenters, from one reviewed topology."""
    if context.invoked_subcommand is None:
        click.echo(_next_steps(Path()))


# A command to type and what it does, for a folder with a topology and for any other.
_WITH_TOPOLOGY = (
    ("repl plan", "show what must change for the clusters to match it"),
    ("repl apply", "show the same, ask, and change exactly that"),
    ("repl status", "show what runs: jobs, flows, lag and rates"),
)
_WITHOUT_TOPOLOGY = (
    ("repl init", "write a topology here; on a terminal it asks for your clusters"),
    ("repl import dc1 --bootstrap HOST:9092", "print what a live cluster holds as a topology"),
    ("repl lab up", "start two Kafka clusters on this machine, for trying things"),
)


def _next_steps(folder: Path) -> str:
    """Returns the output of `repl` without arguments: the three commands that come next in this folder.

    Only the files of the folder itself are opened, not those below it: it may be a user's home folder.
    """
    from planner.config.files import declares_topology

    files = sorted(file.name for file in folder.iterdir() if declares_topology(file))
    if files:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        begin, steps = f"This folder has a topology ({files[0]}{more}). Next:", _WITH_TOPOLOGY
    else:
        begin, steps = "There is no topology in this folder. Begin with one of these:", _WITHOUT_TOPOLOGY
    width = max(len(command) for command, _ in steps)
    lines = (f"  {command:{width}}  {does}" for command, does in steps)
    return "\n".join(
        [begin, "", *lines, "", "repl --help lists every command; repl explain describes the keys."]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit by the contract; no traceback reaches a user."""
    gc.set_threshold(_COLLECT_AFTER)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    A reader that left (`| head`) does not change the code. Output that can't be written for another reason
    makes it an error.
    """
    with guarded():
        code = _run(arguments)
        sys.stdout.flush()
        why = unwritten()
        if why is None or isinstance(why, BrokenPipeError):
            return code
        reason = why.strerror or str(why)
        show([error(f"stdout can't be written: {reason}", "what the command did before this is done")])
        return code or int(ExitCode.ERROR)


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
    except ModuleNotFoundError as wrong:
        extra = extra_of(wrong.name or "")
        show([error(*missing_extra(extra, "this command")) if extra is not None else _unexpected(wrong)])
        return int(ExitCode.ERROR)
    except Exception as wrong:  # noqa: BLE001 - the outermost edge: the traceback is kept, one line is shown
        show([_unexpected(wrong)])
        return int(ExitCode.ERROR)
    return int(outcome) if isinstance(outcome, int) else int(ExitCode.DONE)


def _errors_folder() -> Path | None:
    """Returns where tracebacks are kept; None where a link stands there, which a checkout may bring."""
    try:
        from planner.workflows.topology import launcher_home

        return launcher_home(Path()) / "errors"
    except (Failure, ImportError, OSError):  # the unexpected exception may be that of an import
        return None


def _unexpected(wrong: Exception) -> Diagnostic:
    """Writes the traceback of an unexpected exception to a file, and returns the line for the user."""
    from planner.workflows.interaction import traceback_reporter
    from runtime.contract.client.secrets import redacted

    show = partial(click.echo, err=True)
    report = traceback_reporter(_errors_folder(), f"command-{os.getpid()}", show)
    where = report(wrong)
    text = redacted(str(wrong).splitlines()[0]) if str(wrong) else "no reason given"
    return error(
        f"unexpected {type(wrong).__name__}: {text}; {where}", "this is a mistake in repl: report it"
    )
