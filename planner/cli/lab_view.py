"""Shows the lab: a table or JSON on stdout, progress and hints on stderr."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from planner.cli.console import ProgressBars, print_lines
from planner.cli.output import emit
from planner.render.table import Cell, Column, Row, table
from planner.workflows.lab import BrokerStatus, Lab, LabState, LabStatus, SparkCluster, SparkStatus

_COLOURS = {
    LabState.UP: "green",
    LabState.SILENT: "yellow",
    LabState.PAUSED: "yellow",
    LabState.PARTLY: "yellow",
    LabState.DOWN: "red",
}
_COLUMNS = (
    Column("CLUSTER"),
    Column("STATE"),
    Column("BOOTSTRAP"),
    Column("CLUSTER ID"),
    Column("SECURITY"),
    Column("KAFKA"),
    Column("PID"),
    Column("MEMORY", right=True),
)


def show(status: LabStatus, as_json: bool) -> None:
    if as_json:
        _emit(status)
    elif status.clusters:
        print_lines(lambda width: table(_COLUMNS, list(_rows(status)), width))
    else:
        click.echo(f"There is no lab in {status.home}. repl lab up makes one.", err=True)


def _emit(status: LabStatus | SparkStatus) -> None:
    """Prints a status as a JSON document, its version first."""
    document = asdict(status)
    emit({"format_version": document.pop("format_version"), **document})


def _rows(status: LabStatus) -> Iterator[Row]:
    for cluster in status.clusters:
        name, cluster_id, security = cluster.name, cluster.cluster_id, cluster.security
        if len(cluster.brokers) == 1:
            yield name, *_facts(cluster.brokers[0], cluster_id, security)
        else:
            versions, memory = ", ".join(cluster.versions), _size(cluster.memory_bytes)
            yield name, _state(cluster.state), "", cluster_id, security, versions, "", memory
            for broker in cluster.brokers:
                yield f"  {name}:{broker.node}", *_facts(broker)
        if cluster.zookeeper is not None:
            yield f"  {name}:zookeeper", *_facts(cluster.zookeeper, kafka=False)
    if (kdc := status.kdc) is not None:
        pid = str(kdc.pid) if kdc.pid else "–"
        yield "kdc", _state(kdc.state), kdc.address, "", kdc.realm, "", pid, _size(kdc.memory_bytes)


def _facts(broker: BrokerStatus, cluster_id: str = "", security: str = "", *, kafka: bool = True) -> Row:
    pid = str(broker.pid) if broker.pid else "–"
    version = broker.version if kafka else ""
    memory = _size(broker.memory_bytes)
    return _state(broker.state), broker.address, cluster_id, security, version, pid, memory


def _state(state: LabState) -> Cell:
    return Cell(state, _COLOURS[state])


def _size(octets: int) -> str:
    return f"{octets / 1_000_000:.0f} MB" if octets else "–"


def hints(lab: Lab) -> None:
    """Prints the next steps, for people."""
    here = lab.home.parent
    home = str(lab.home.relative_to(here)) if here == here.cwd() else str(lab.home)
    click.echo(f"\nThe clusters for a topology: {home}/topology.yaml", err=True)
    for name, cluster in lab.clusters.items():
        if cluster.users:
            users = ", ".join(cluster.users)
            click.echo(f"Client settings of {name}: {home}/{name}/client.yaml (users: {users})", err=True)
    if lab.kdc.exists:
        settings = shlex.quote(str(lab.kdc.client_settings))
        click.echo(f"Where repl and its jobs run: export KRB5_CONFIG={settings}", err=True)
    click.echo("repl lab down stops them; repl lab kill dc1 shows what a lost datacenter does.", err=True)


def show_spark(status: SparkStatus, as_json: bool) -> None:
    """Shows a cluster for Spark's applications: its daemons, and how a job uses it."""
    if as_json:
        _emit(status)
        return
    rows: list[Row] = [
        (
            daemon.name,
            _state(LabState.UP if daemon.serves else LabState.SILENT if daemon.pid else LabState.DOWN),
            str(daemon.pid) if daemon.pid else "–",
            _size(daemon.memory_bytes),
            daemon.log,
        )
        for daemon in status.daemons
    ]
    columns = (Column("DAEMON"), Column("STATE"), Column("PID"), Column("MEMORY", right=True), Column("LOG"))
    print_lines(lambda width: table(columns, rows, width))
    job = f"launcher: {status.kind}"
    if status.kind is SparkCluster.STANDALONE:
        secured = 'conf: {spark.authenticate: "true", spark.driver.host: 127.0.0.1}'
        job += f', master: "{status.master}", {secured}'
    click.echo(f"\nIts page: {status.page}\nA job on it: jobs: {{dc2: {{{job}}}}}", err=True)
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in status.environment.items())
    click.echo(f"Where repl apply is called: export {words}", err=True)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows bars on a terminal, elsewhere one line for each part that starts."""
    bars = ProgressBars()
    begun: set[str] = set()

    def report(what: str, done: int, total: int) -> None:
        if bars.on_terminal:
            bars.progress(what, "", done, total)
        elif what not in begun:
            begun.add(what)
            click.echo(f"{what} …", err=True)

    bars.start()
    try:
        yield report
    finally:
        bars.stop()
