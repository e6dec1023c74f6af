"""Shows the lab: a table or JSON on stdout, progress and hints on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
import msgspec
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from planner.cli.console import console, progress_console, terminal_width
from planner.workflows.lab import BrokerStatus, ClusterStatus, Lab, LabState, LabStatus

_COLOURS = {
    LabState.UP: "green",
    LabState.SILENT: "yellow",
    LabState.PAUSED: "yellow",
    LabState.PARTLY: "yellow",
    LabState.DOWN: "red",
}
_PLAIN_WIDTH = 200  # without a terminal nothing is cut


def show(status: LabStatus, as_json: bool) -> None:
    if as_json:
        facts = asdict(status)
        ordered = {"format_version": facts.pop("format_version"), **facts}
        click.echo(msgspec.json.format(msgspec.json.encode(ordered), indent=2).decode())
        return
    if not status.clusters:
        click.echo(f"There is no lab in {status.home}. repl lab up makes one.", err=True)
        return
    console(terminal_width() or _PLAIN_WIDTH).print(_table(status))


def _table(status: LabStatus) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("CLUSTER", "STATE", "BOOTSTRAP", "CLUSTER ID", "SECURITY", "KAFKA", "PID"):
        table.add_column(heading, no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    for cluster in status.clusters:
        if len(cluster.brokers) == 1:
            table.add_row(*_row(cluster, cluster.brokers[0]))
            _add_zookeeper(table, cluster)
            continue
        table.add_row(
            cluster.name,
            _state(cluster.state),
            "",
            cluster.cluster_id,
            cluster.security,
            ", ".join(cluster.versions),
            "",
            _size(cluster.memory_bytes),
        )
        for broker in cluster.brokers:
            table.add_row(f"  {cluster.name}:{broker.node}", *_facts(broker, "", ""))
        _add_zookeeper(table, cluster)
    return table


def _add_zookeeper(table: Table, cluster: ClusterStatus) -> None:
    if cluster.zookeeper is not None:
        table.add_row(f"  {cluster.name}:zookeeper", *_facts(cluster.zookeeper, "", "", kafka=False))


def _row(cluster: ClusterStatus, broker: BrokerStatus) -> tuple[str | Text, ...]:
    return cluster.name, *_facts(broker, cluster.cluster_id, cluster.security)


def _facts(
    broker: BrokerStatus, cluster_id: str, security: str, *, kafka: bool = True
) -> tuple[str | Text, ...]:
    pid = str(broker.pid) if broker.pid else "–"
    version = broker.version if kafka else ""
    memory = _size(broker.memory_bytes)
    return _state(broker.state), broker.address, cluster_id, security, version, pid, memory


def _state(state: LabState) -> Text:
    return Text(state, _COLOURS[state])


def _size(octets: int) -> str:
    return f"{octets / 1_000_000:.0f} MB" if octets else "–"


def hints(lab: Lab) -> None:
    """Prints the next steps, for people."""
    click.echo(f"\nThe clusters for a topology: {_short(lab, 'topology.yaml')}", err=True)
    for name, cluster in lab.clusters.items():
        if cluster.users:
            users = ", ".join(cluster.users)
            click.echo(
                f"Client settings of {name}: {_short(lab, name)}/client.yaml (users: {users})", err=True
            )
    click.echo("repl lab down stops them; repl lab kill dc1 shows what a lost datacenter does.", err=True)


def _short(lab: Lab, name: str) -> str:
    path = lab.home / name
    here = lab.home.parent
    return str(path.relative_to(here)) if here == here.cwd() else str(path)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows a bar on a terminal, elsewhere one line for each part that starts."""
    shown_on = progress_console()
    if not shown_on.is_terminal:
        yield _lines(set())
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TimeElapsedColumn(), console=shown_on, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield report


def _lines(begun: set[str]) -> Callable[[str, int, int], None]:
    def report(what: str, _done: int, _total: int) -> None:
        if what not in begun:
            begun.add(what)
            click.echo(f"{what} …", err=True)

    return report
