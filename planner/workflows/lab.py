"""`repl lab`: real Kafka clusters on this machine, started, stopped and disturbed.

Errors of the lab become Failure here. The names below `__all__` are what callers show of a lab.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.model.diagnostic import Failure, error
from planner.workflows.requests import LabChoices
from runtime.lab.cluster import (
    ADMIN,
    KAFKA_VERSION,
    MECHANISMS,
    SCRAM,
    KafkaVersion,
    LabClusterSpec,
    LabKafkaCluster,
    Listener,
    Security,
    default_ports,
)
from runtime.lab.files import LabError
from runtime.lab.lab import BrokerStatus, ClusterStatus, Lab, LabState, LabStatus
from runtime.lab.load import LoadGenerator, LoadTarget, targets_of
from runtime.lab.spark import LabSpark, SparkCluster, SparkStatus

__all__ = [
    "ADMIN",
    "KAFKA_VERSION",
    "LINK",
    "MECHANISMS",
    "SCRAM",
    "BrokerStatus",
    "ClusterStatus",
    "KafkaVersion",
    "Lab",
    "LabClusterSpec",
    "LabKafkaCluster",
    "LabState",
    "LabStatus",
    "Listener",
    "Security",
    "SparkCluster",
    "SparkStatus",
    "generate_load",
    "lab_status",
    "open_lab",
    "open_spark",
    "start_lab",
    "stop_lab",
]

DEFAULT_CLUSTERS = ("dc1", "dc2")
LINK = "LINK"  # the listener behind a proxy: clients that come through it are referred to the proxy
Report = Callable[[str, int, int], None]  # what is done, how much of it, of how much


def silent_report(_what: str, _done: int, _total: int) -> None:
    """Shows nothing."""


_USUAL = LabChoices()


def start_lab(home: Path, choices: LabChoices = _USUAL, report: Report = silent_report) -> Lab:
    """Brings clusters up, and returns when their brokers answer. What runs already is left alone."""
    with open_lab(home, report) as lab:
        lab.up(specs(lab.clusters, choices))
        return lab


def stop_lab(home: Path, *, purge: bool = False) -> tuple[str, ...]:
    """Stops every broker, and the clusters for Spark's applications, which it removes.

    Returns the names of all. With `purge`, data and settings of brokers are removed.
    """
    with open_lab(home) as lab:
        try:
            spark = [f"spark {kind} (removed)" for kind in SparkCluster if LabSpark(home, kind).down()]
        finally:
            names = lab.down(purge=purge)
        return (*names, *spark)


def lab_status(home: Path) -> LabStatus:
    """Returns what runs: clusters with their brokers, addresses, states and memory."""
    with open_lab(home) as lab:
        return lab.status()


def generate_load(
    home: Path,
    targets: Sequence[str],
    rate: float,
    seconds: float,
    report: Callable[[str], None],
    passed: Callable[[float], None],
) -> list[LoadTarget]:
    """Writes numbered records to CLUSTER:TOPIC targets at a steady rate. Ctrl-C ends it early.

    `report` gets lines about clusters that do not answer, and `passed` the seconds that are over.
    """
    with open_lab(home) as lab:
        wanted = targets_of(targets)
        writing = LoadGenerator(lab, wanted, rate, report, passed)
        try:
            writing.run(seconds)
        except KeyboardInterrupt:
            report("Stopped.")
        return wanted


@contextmanager
def open_lab(home: Path, report: Report = silent_report) -> Iterator[Lab]:
    """Yields the lab in a folder. Its errors become Failure."""
    with _failures():
        yield Lab(home, report=report)


@contextmanager
def open_spark(home: Path, kind: SparkCluster, report: Report = silent_report) -> Iterator[LabSpark]:
    """Yields the cluster for Spark's applications in a lab's folder. Its errors become Failure."""
    with _failures():
        yield LabSpark(home, kind, report=report)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except LabError as problem:
        raise Failure(error(problem.what, problem.hint, address=problem.where or None)) from problem


def specs(existing: Mapping[str, LabKafkaCluster], choices: LabChoices) -> list[LabClusterSpec]:
    """Returns what each cluster shall be. One that exists keeps what no choice names."""
    names = tuple(existing) or DEFAULT_CLUSTERS
    if choices.clusters is not None:
        names = tuple(dict.fromkeys(name.strip() for name in choices.clusters.split(",") if name.strip()))
        if not names:
            raise LabError("--clusters names no cluster", "for example --clusters dc1,dc2")
    chosen: dict[str, Any] = {}
    if choices.brokers is not None:
        chosen["brokers"] = choices.brokers
    if choices.security is not None:
        chosen["security"] = Security(choices.security)
    if choices.mechanism is not None:
        chosen["mechanism"] = choices.mechanism
    if choices.users:
        chosen["users"] = tuple(dict.fromkeys(choices.users))
    properties = _properties(choices.settings, names)
    versions = _versions(choices.version, names)
    free = iter(default_ports(cluster.spec.port for cluster in existing.values() if cluster.spec.port))

    def spec(name: str) -> LabClusterSpec:
        settings = chosen | ({"properties": properties[name]} if properties[name] else {})
        if name in versions:
            settings["version"] = versions[name]
        if name in existing:
            return replace(existing[name].spec, **settings)
        port = None
        if choices.ports != "auto" and (port := next(free, None)) is None:
            raise LabError("there are no more fixed ports for another cluster", "use --ports auto")
        return LabClusterSpec(name, port=port, **settings)

    return [spec(name) for name in names]


def _versions(version: str | None, names: Sequence[str]) -> dict[str, str]:
    """Returns the version of each cluster that --version names."""
    if version is None:
        return {}
    if "=" not in version:
        return dict.fromkeys(names, version.strip())
    versions: dict[str, str] = {}
    for part in version.split(","):
        cluster, equals, chosen = (word.strip() for word in part.partition("="))
        if not equals or cluster not in names:
            raise LabError(
                f"--version {part.strip()} names none of these clusters",
                f"they are {', '.join(names)}: for example --version {names[0]}=2.8.2",
            )
        versions[cluster] = chosen
    return versions


def _properties(settings: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    properties: dict[str, dict[str, str]] = {name: {} for name in names}
    for setting in settings:
        key, equals, value = setting.partition("=")
        cluster, colon, key_of_one = key.partition(":")
        if not equals or not key:
            raise LabError(f"--set {setting} is not KEY=VALUE", "for example --set num.partitions=6")
        if colon and cluster not in properties:
            raise LabError(
                f"--set {setting} is for {cluster!r}, which is none of these clusters",
                f"they are {', '.join(names)}",
            )
        for name in (cluster,) if colon else names:
            properties[name][key_of_one if colon else key] = value
    return properties
