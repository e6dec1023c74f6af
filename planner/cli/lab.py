"""repl lab: real Kafka clusters on this machine, for trying things and for tests."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli import as_json as json_output

if TYPE_CHECKING:
    from runtime.lab.lab import Lab

FORMAT_VERSION = 1  # of what `load` has written

home_option = click.option(
    "--home",
    type=click.Path(file_okay=True, path_type=Path),
    default=".lab",
    envvar="REPL_LAB_HOME",
    show_default=True,
    show_envvar=True,
    help="The folder the lab lives in.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the lab's status as JSON.")
address_argument = click.argument("cluster", metavar="CLUSTER[:BROKER]")


@click.group()
def command() -> None:
    """Real Kafka clusters on this machine, for trying things and for tests."""


@command.command()
@click.option(
    "--clusters", metavar="NAMES", help="Their names, with commas.  [default: those there are, else dc1,dc2]"
)
@click.option("--brokers", type=click.IntRange(1, 9), help="Brokers of each cluster.  [default: 1]")
@click.option(
    "--security",
    type=click.Choice(["plain", "sasl", "tls"]),
    help="sasl: SCRAM users and ACLs; tls: both sides show certificates.  [default: plain]",
)
@click.option(
    "--ports",
    type=click.Choice(["fixed", "auto"]),
    default="fixed",
    show_default=True,
    help="fixed: 19092, 29092, …; auto: free ones.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[CLUSTER:]KEY=VALUE",
    help="A broker property, for every cluster or for one. May be repeated.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME",
    help="A user beside admin, with sasl and tls. May be repeated.  [default: repl, app]",
)
@click.option(
    "--version",
    metavar="VERSION",
    help="Kafka's version, for every cluster or for each: dc1=2.8.2,dc2=4.1.1.  [default: 4.1.1]",
)
@home_option
@json_option
def up(home: Path, as_json: bool, **choices: Any) -> None:
    """Bring clusters up, and return when their brokers answer.

    What runs already is left alone, what was killed or stopped is started on its data."""
    from planner.cli.lab_choices import specs
    from planner.cli.lab_view import hints, progress

    with _told(), _terminable(), progress() as report:
        lab = _lab(home, report)
        lab.up(specs(lab.clusters, **choices))
    _show(lab, as_json)
    if not as_json:
        hints(lab)


@command.command()
@click.option("--purge", is_flag=True, help="Remove their data and settings too.")
@home_option
@json_option
def down(home: Path, purge: bool, as_json: bool) -> None:
    """Stop every broker of the lab."""
    with _told():
        lab = _lab(home)
        names = ", ".join(lab.clusters)
        lab.down(purge=purge)
    if as_json:
        _show(lab, as_json)
    elif names:
        click.echo(
            f"{names}: {'stopped, data removed' if purge else 'stopped; repl lab up starts again'}.", err=True
        )
    else:
        click.echo(f"There is no lab in {home}.", err=True)


@command.command()
@home_option
@json_option
def status(home: Path, as_json: bool) -> None:
    """What runs: name, cluster id, bootstrap, pids, state, memory."""
    with _told():
        _show(_lab(home), as_json)


def _act(name: str, done: str, summary: str) -> click.Command:
    """kill, stop, pause, unpause: each takes a cluster or one of its brokers."""

    @click.command(name, help=summary)
    @address_argument
    @home_option
    @json_option
    def act(cluster: str, home: Path, as_json: bool) -> None:
        with _told(), _terminable():
            lab = _lab(home)
            getattr(lab, name)(cluster)
            if as_json:
                _show(lab, as_json)
            else:
                click.echo(f"{cluster} {done.format(cluster=cluster)}.", err=True)

    return act


@click.command(help="Start a cluster, or one broker (dc1:2), on the data it left.")
@address_argument
@click.option("--version", metavar="VERSION", help="With this version of Kafka from now on: an upgrade.")
@home_option
@json_option
def start(cluster: str, version: str | None, home: Path, as_json: bool) -> None:
    with _told(), _terminable():
        lab = _lab(home)
        lab.start(cluster, version=version)
        if as_json:
            _show(lab, as_json)
        else:
            click.echo(f"{cluster} answers again.", err=True)


for _command in (
    start,
    _act(
        "kill",
        "was killed; its data stays: repl lab start {cluster}",
        "SIGKILL, as a power cut would; data stays.",
    ),
    _act(
        "stop",
        "was stopped: repl lab start {cluster}",
        "SIGTERM: what it leads is handed over; data stays.",
    ),
    _act(
        "pause", "is paused: repl lab unpause {cluster}", "SIGSTOP: connections stay open, nothing answers."
    ),
    _act("unpause", "goes on", "SIGCONT: go on after a pause."),
):
    command.add_command(_command)


@command.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@home_option
@click.argument("cluster")
@click.argument("tool", metavar="CLASS")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tool(home: Path, cluster: str, tool: str, arguments: tuple[str, ...]) -> int:
    """Run one of Kafka's own tools against a cluster.

    CLASS is TopicCommand, ConsoleProducer, ConsoleConsumer or another, with its package or without. The
    bootstrap is added; {client} in an argument becomes the file with the client settings."""
    with _told():
        words = _lab(home).tool_command(cluster, tool, *arguments)
    return subprocess.run(words, check=False).returncode


@command.command()
@click.argument("targets", nargs=-1, required=True, metavar="CLUSTER:TOPIC...")
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 100_000),
    default=50.0,
    show_default=True,
    help="Records a second, each.",
)
@click.option("--seconds", type=click.FloatRange(0.1), default=30.0, show_default=True, help="For how long.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
@home_option
def load(targets: tuple[str, ...], rate: float, seconds: float, as_json: bool, home: Path) -> int:
    """Write numbered records to topics of the lab, at a steady rate."""
    with _told(), _terminable():
        from runtime.lab.load import LoadGenerator, targets_of

        wanted = targets_of(targets)
        writing = LoadGenerator(_lab(home), wanted, rate, report=lambda line: click.echo(line, err=True))
        try:
            writing.run(seconds)
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
    if as_json:
        written = [{**asdict(target), "failed": target.failed or None} for target in wanted]
        json_output.emit({"format_version": FORMAT_VERSION, "targets": written})
    else:
        for target in wanted:
            lost = f"; {target.lost:,} were not acknowledged: {target.failed}" if target.lost else ""
            click.echo(f"{target.name}: {target.written:,} records written{lost}", err=True)
    return 1 if any(target.lost for target in wanted) else 0


def _lab(home: Path, report: Callable[[str, int, int], None] | None = None) -> "Lab":
    from runtime.lab.lab import Lab

    return Lab(home, report=report) if report else Lab(home)


def _show(lab: "Lab", as_json: bool) -> None:
    from planner.cli.lab_view import show

    show(lab.status(), as_json)


@contextmanager
def _told() -> Iterator[None]:
    """The lab's errors become diagnostics, here and nowhere else."""
    from planner.model.diagnostic import Failure, error
    from runtime.lab.errors import LabError

    try:
        yield
    except LabError as problem:
        raise Failure(error(problem.what, problem.way_out, address=problem.where or None)) from problem


@contextmanager
def _terminable() -> Iterator[None]:
    """A polite kill or a closed terminal cleans up as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
