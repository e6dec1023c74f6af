"""`repl lab`: real Kafka clusters on this machine, for trials and tests."""

import subprocess
from dataclasses import asdict
from pathlib import Path

import click

from planner.cli.output import emit

FORMAT_VERSION = 1  # of what `repl lab load --json` prints

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
    """Run real Kafka clusters on this machine, for trials and tests."""


@command.command()
@click.option(
    "--clusters", metavar="NAMES", help="Their names, with commas.  [default: those there are, else dc1,dc2]"
)
@click.option("--brokers", type=click.IntRange(1, 9), help="Brokers of each cluster.  [default: 1]")
@click.option(
    "--security",
    type=click.Choice(["plain", "sasl", "tls", "sasl-tls", "server-tls"]),
    help="sasl: users and ACLs; tls: both sides show certificates; sasl-tls: sasl over TLS; server-tls: only "
    "brokers show certificates.  [default: plain]",
)
@click.option(
    "--mechanism",
    type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
    help="How users log in with sasl and sasl-tls.  [default: SCRAM-SHA-512]",
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
def up(
    home: Path,
    as_json: bool,
    clusters: str | None,
    brokers: int | None,
    security: str | None,
    mechanism: str | None,
    ports: str,
    settings: tuple[str, ...],
    users: tuple[str, ...],
    version: str | None,
) -> None:
    """Bring clusters up, and return when their brokers answer.

    What runs already is left alone, what was killed or stopped is started on its data."""
    from planner.cli.lab_view import hints, progress, show
    from planner.cli.view import terminable
    from planner.workflows.lab import LabChoices, start_lab

    choices = LabChoices(clusters, brokers, security, ports, settings, users, version, mechanism)
    with terminable(), progress() as report:
        lab = start_lab(home, choices, report)
    show(lab.status(), as_json)
    if not as_json:
        hints(lab)


@command.command()
@click.option("--purge", is_flag=True, help="Remove their data and settings too.")
@home_option
@json_option
def down(home: Path, purge: bool, as_json: bool) -> None:
    """Stop every broker of the lab."""
    from planner.cli.lab_view import show
    from planner.workflows.lab import lab_status, stop_lab

    names = ", ".join(stop_lab(home, purge=purge))
    if as_json:
        show(lab_status(home), as_json)
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
    from planner.cli.lab_view import show
    from planner.workflows.lab import lab_status

    show(lab_status(home), as_json)


def _act(name: str, done: str, summary: str) -> click.Command:
    """Returns a command that acts on a cluster or on one of its brokers."""

    @click.command(name, help=summary)
    @address_argument
    @home_option
    @json_option
    def act(cluster: str, home: Path, as_json: bool) -> None:
        from planner.cli.lab_view import show
        from planner.cli.view import terminable
        from planner.workflows.lab import LabAction, act_on_lab, lab_status

        with terminable():
            act_on_lab(home, LabAction(name), cluster)
        if as_json:
            show(lab_status(home), as_json)
        else:
            click.echo(f"{cluster} {done.format(cluster=cluster)}.", err=True)

    return act


@click.command(help="Start a cluster, or one broker (dc1:2), on the data it left.")
@address_argument
@click.option("--version", metavar="VERSION", help="With this version of Kafka from now on: an upgrade.")
@home_option
@json_option
def start(cluster: str, version: str | None, home: Path, as_json: bool) -> None:
    from planner.cli.lab_view import show
    from planner.cli.view import terminable
    from planner.workflows.lab import lab_status, start_brokers

    with terminable():
        start_brokers(home, cluster, version)
    if as_json:
        show(lab_status(home), as_json)
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
    _act("unpause", "continues", "SIGCONT: continue after a pause."),
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
    from planner.workflows.lab import tool_command

    return subprocess.run(tool_command(home, cluster, tool, arguments), check=False).returncode


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
    from planner.cli.view import terminable
    from planner.workflows.lab import generate_load

    with terminable():
        wanted = generate_load(home, targets, rate, seconds, lambda line: click.echo(line, err=True))
    if as_json:
        written = [{**asdict(target), "failed": target.failed or None} for target in wanted]
        emit({"format_version": FORMAT_VERSION, "targets": written})
    else:
        for target in wanted:
            lost = f"; {target.lost:,} were not acknowledged: {target.failed}" if target.lost else ""
            click.echo(f"{target.name}: {target.written:,} records written{lost}", err=True)
    return 1 if any(target.lost for target in wanted) else 0
