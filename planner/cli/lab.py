"""`repl lab`: real Kafka clusters on this machine, and clusters for Spark, for trials and tests."""

import subprocess
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import click

from planner.cli.command import FORMAT_VERSION, command
from planner.cli.output import emit
from planner.workflows.options import Argument, Option
from planner.workflows.requests import LabChoices

Home = Annotated[Path, Option("--home", "The folder the lab lives in.", variable="REPL_LAB_HOME")]
StatusAsJson = Annotated[bool, Option("--json", "Print the lab's status as JSON.")]
Broker = Annotated[str, Argument(metavar="CLUSTER[:BROKER]")]
HOME = Path(".lab")


@click.group()
def lab() -> None:
    """Run real Kafka clusters on this machine, for trials and tests."""


@command
def up(choices: LabChoices, home: Home = HOME, as_json: StatusAsJson = False) -> int:
    """Bring clusters up, and return when their brokers answer.

    What runs already is left alone, what was killed or stopped is started on its data."""
    from planner.cli.lab_view import hints, progress, show
    from planner.cli.view import terminable
    from planner.workflows.lab import start_lab

    with terminable(), progress() as report:
        started = start_lab(home, choices, report)
    show(started.status(), as_json)
    if not as_json:
        hints(started)
    return 0


@command
def down(
    purge: Annotated[bool, Option("--purge", "Remove their data and settings too.")] = False,
    home: Home = HOME,
    as_json: StatusAsJson = False,
) -> int:
    """Stop every broker of the lab, its KDC, and its clusters for Spark."""
    from planner.workflows.lab import stop_lab

    names = ", ".join(stop_lab(home, purge=purge))
    what = "stopped, data removed" if purge else "stopped; repl lab up starts again"
    return _report(home, as_json, f"{names}: {what}." if names else f"There is no lab in {home}.")


@command
def status(home: Home = HOME, as_json: StatusAsJson = False) -> int:
    """What runs: name, cluster id, bootstrap, pids, state, memory."""
    return _report(home, as_json)


def _report(home: Path, as_json: bool, done: str = "") -> int:
    """Prints what was done, or what runs now: as JSON, and where nothing was done."""
    from planner.cli.lab_view import show
    from planner.workflows.lab import lab_status

    if done and not as_json:
        click.echo(done, err=True)
    else:
        show(lab_status(home), as_json)
    return 0


@command
def start(
    cluster: Broker,
    version: Annotated[
        str | None,
        Option("--version", "With this version of Kafka from now on: an upgrade.", "VERSION"),
    ] = None,
    home: Home = HOME,
    as_json: StatusAsJson = False,
) -> int:
    """Start a cluster, or one broker (dc1:2), on the data it left."""
    from planner.cli.view import terminable
    from planner.workflows.lab import open_lab

    with terminable(), open_lab(home) as opened:
        opened.start(cluster, version=version)
    return _report(home, as_json, f"{cluster} answers again.")


def _signal(name: str, about: str, done: str) -> click.Command:
    """Returns the command that sends a signal to a cluster, or to one broker, by Lab's method of its name."""

    def send(cluster: Broker, home: Home = HOME, as_json: StatusAsJson = False) -> int:
        from planner.cli.view import terminable
        from planner.workflows.lab import open_lab

        with terminable(), open_lab(home) as opened:
            getattr(opened, name)(cluster)
        return _report(home, as_json, f"{cluster} {done.format(cluster=cluster)}.")

    send.__doc__ = about
    return command(send, name=name)


kill = _signal(
    "kill",
    "SIGKILL, as a power cut would; data stays.",
    "was killed; its data stays: repl lab start {cluster}",
)
stop = _signal(
    "stop",
    "SIGTERM: what it leads is handed over; data stays.",
    "was stopped: repl lab start {cluster}",
)
pause = _signal(
    "pause",
    "SIGSTOP: connections stay open, nothing answers.",
    "is paused: repl lab unpause {cluster}",
)
unpause = _signal("unpause", "SIGCONT: continue after a pause.", "continues")


@partial(command, settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def tool(
    cluster: Annotated[str, Argument()],
    tool: Annotated[str, Argument("CLASS")],
    arguments: Annotated[tuple[str, ...], Argument()],
    home: Home = HOME,
) -> int:
    """Run one of Kafka's own tools against a cluster.

    CLASS is TopicCommand, ConsoleProducer, ConsoleConsumer or another, with its package or without. The
    bootstrap is added; {client} in an argument becomes the file with the client settings."""
    from planner.workflows.lab import open_lab

    with open_lab(home) as opened:
        words = opened.tool_command(cluster, tool, *arguments)
    return subprocess.run(words, check=False).returncode


@command
def load(
    targets: Annotated[tuple[str, ...], Argument(metavar="CLUSTER:TOPIC...")],
    rate: Annotated[float, Option("--rate", "Records a second, each.", least=0.1, most=100_000)] = 50.0,
    seconds: Annotated[float, Option("--seconds", "For how long.", least=0.1)] = 30.0,
    as_json: Annotated[bool, Option("--json", "Print what was written as JSON.")] = False,
    home: Home = HOME,
) -> int:
    """Write numbered records to topics of the lab, at a steady rate."""
    from planner.cli.lab_view import progress
    from planner.cli.view import terminable
    from planner.workflows.lab import generate_load

    def passed(over_s: float) -> None:
        bar(f"writing for {seconds:g} s", int(over_s), max(int(seconds), 1))

    with terminable(), progress() as bar:
        wanted = generate_load(home, targets, rate, seconds, lambda line: click.echo(line, err=True), passed)
    if as_json:
        written = [{**asdict(target), "failed": target.failed or None} for target in wanted]
        emit({"format_version": FORMAT_VERSION, "targets": written})
    else:
        for target in wanted:
            lost = f"; {target.lost:,} were not acknowledged: {target.failed}" if target.lost else ""
            click.echo(f"{target.name}: {target.written:,} records written{lost}", err=True)
    return 1 if any(target.lost for target in wanted) else 0


@click.group()
def spark() -> None:
    """Run a real cluster for Spark's applications on this machine: YARN, or Spark's own."""


def _cluster_commands(kind: str, about: str, manager: str, worker: str) -> click.Group:
    """Returns the commands of one kind of cluster."""

    def up(
        workers: Annotated[
            int | None, Option("--workers", f"How many {worker}s.  [default: 2]", least=1, most=9)
        ] = None,
        memory: Annotated[
            int | None,
            Option("--memory", f"MB for executors, of each {worker}.  [default: 4096]", least=1024),
        ] = None,
        cores: Annotated[
            int | None, Option("--cores", f"Cores that each {worker} offers.  [default: 8]", least=1)
        ] = None,
        home: Home = HOME,
        as_json: StatusAsJson = False,
    ) -> int:
        from planner.cli.lab_view import progress, show_spark
        from planner.cli.view import terminable
        from planner.workflows.lab import SparkCluster, open_spark

        with terminable(), progress() as report, open_spark(home, SparkCluster(kind), report) as cluster:
            cluster.up(workers, memory, cores)
            show_spark(cluster.status(), as_json)
        return 0

    def down(home: Home = HOME) -> int:
        from planner.workflows.lab import SparkCluster, open_spark

        with open_spark(home, SparkCluster(kind)) as cluster:
            removed = cluster.down()
        click.echo("stopped and removed." if removed else f"There is none in {home}.", err=True)
        return 0

    def status(home: Home = HOME, as_json: StatusAsJson = False) -> int:
        from planner.cli.lab_view import show_spark
        from planner.workflows.lab import SparkCluster, open_spark

        with open_spark(home, SparkCluster(kind)) as cluster:
            show_spark(cluster.status(), as_json)
        return 0

    def kill(daemon: Annotated[str, Argument()], home: Home = HOME) -> int:
        from planner.workflows.lab import SparkCluster, open_spark

        with open_spark(home, SparkCluster(kind)) as cluster:
            cluster.kill(daemon)
        click.echo(f"{daemon} was killed: repl lab spark {kind} up starts it again", err=True)
        return 0

    helps: dict[Callable[..., int], str] = {
        up: "Start what does not run, and return when it offers its resources.",
        down: "Stop it with all that runs on it, and remove it.",
        status: "What runs, and what a job needs to run on it.",
        kill: f"SIGKILL to a daemon and to all that it started: {manager}, or {worker}1.",
    }
    group = click.Group(kind, help=about)
    for function, text in helps.items():
        function.__doc__ = text
        group.add_command(command(function))
    return group


for _group in (
    _cluster_commands("yarn", "YARN: a ResourceManager and NodeManagers.", "resourcemanager", "nodemanager"),
    _cluster_commands("standalone", "Spark's own Master and Workers.", "master", "worker"),
):
    spark.add_command(_group)

for _command in (up, down, status, start, kill, stop, pause, unpause, tool, load, spark):
    lab.add_command(_command)
