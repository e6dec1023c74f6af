"""This module runs and inspects a lab: real Kafka clusters as processes of this machine, kept in one folder.

lab = Lab(Path(".lab"))
lab.up([ClusterSpec("dc1"), ClusterSpec("dc2", brokers=3, security=Security.SASL)])
Producer(lab.clusters["dc1"].client)
lab.kill("dc1")
lab.start("dc1")
lab.down(purge=True)
"""

import functools
import shutil
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from runtime.lab import create, processes
from runtime.lab.brokers import zookeeper
from runtime.lab.brokers.launch import Kits, LabBroker, answers, launch, stop
from runtime.lab.cluster import (
    ZOOKEEPER,
    BrokerPorts,
    KafkaVersion,
    LabClusterSpec,
    LabKafkaCluster,
    Security,
)
from runtime.lab.files import LabError, changing, ours
from runtime.lab.kdc import REALM, Kdc, require_programs
from runtime.lab.kit import Kit, Report, bootstrap_flag, ensure_archive, find_kit, main_class, silent
from runtime.lab.processes import LabProcess


class LabState(StrEnum):
    """These are the states of a broker or a cluster."""

    UP = "up"  # answers clients
    SILENT = "silent"  # runs, but does not answer (yet)
    PAUSED = "paused"
    DOWN = "down"
    PARTLY = "partly up"  # of a cluster only: its brokers are in different states


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A BrokerStatus is the state of one broker."""

    node: int
    address: str
    state: LabState
    pid: int | None
    memory_bytes: int
    log: str
    version: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A ClusterStatus is the state of one cluster and of its brokers."""

    name: str
    cluster_id: str
    bootstrap: str
    security: Security
    state: LabState
    memory_bytes: int
    client_properties: str
    client_yaml: str
    brokers: tuple[BrokerStatus, ...]
    versions: tuple[str, ...]  # the oldest first
    zookeeper: BrokerStatus | None = None  # where the version needs it


@dataclass(frozen=True, slots=True)
class KdcStatus:
    """A KdcStatus is the state of the lab's KDC."""

    realm: str
    address: str
    state: LabState
    pid: int | None
    memory_bytes: int
    log: str
    client_settings: str  # the krb5.conf that KRB5_CONFIG names


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A LabStatus is the state of all clusters of a lab, and of its KDC where there is one."""

    home: str
    topology: str
    clusters: tuple[ClusterStatus, ...]
    kdc: KdcStatus | None = None
    format_version: int = 1


_ANSWERS_WITHIN_S = 3.0


def probe_clusters(home: Path, clusters: Sequence[LabKafkaCluster]) -> LabStatus:
    """Inspects all brokers in parallel and returns the lab's state."""
    running = processes.find([mark for cluster in clusters for mark in cluster.marks])

    def broker(owner: tuple[LabKafkaCluster, BrokerPorts]) -> BrokerStatus:
        cluster, node = owner
        process = running.get(cluster.mark(node))
        return BrokerStatus(
            node=node.id,
            address=cluster.address(node),
            state=_state(cluster, node, process),
            pid=process.pid if process else None,
            memory_bytes=process.memory if process else 0,
            log=str(cluster.log_file(node)),
            version=node.version,
        )

    with ThreadPoolExecutor(max_workers=8) as pool:
        broker_statuses = {
            cluster.name: pool.map(broker, [(cluster, node) for node in cluster.processes])
            for cluster in clusters
        }
        cluster_statuses = tuple(
            _cluster(cluster, tuple(broker_statuses[cluster.name])) for cluster in clusters
        )
    return LabStatus(str(home), str(home / "topology.yaml"), cluster_statuses, _kdc(Kdc(home)))


def _kdc(kdc: Kdc) -> KdcStatus | None:
    if not kdc.exists:
        return None
    process = kdc.process
    state = LabState.DOWN if process is None else LabState.UP if kdc.serves else LabState.SILENT
    if process is not None and process.paused:
        state = LabState.PAUSED
    return KdcStatus(
        realm=REALM,
        address=kdc.address,
        state=state,
        pid=process.pid if process else None,
        memory_bytes=process.memory if process else 0,
        log=str(kdc.log),
        client_settings=str(kdc.client_settings),
    )


def _state(cluster: LabKafkaCluster, node: BrokerPorts, process: LabProcess | None) -> LabState:
    if process is None:
        return LabState.DOWN
    if process.paused:
        return LabState.PAUSED
    if node.id == ZOOKEEPER:
        return LabState.UP if zookeeper.serves(cluster, node) else LabState.SILENT
    return LabState.UP if answers(cluster, node, _ANSWERS_WITHIN_S) else LabState.SILENT


def _cluster(cluster: LabKafkaCluster, nodes: tuple[BrokerStatus, ...]) -> ClusterStatus:
    brokers = tuple(node for node in nodes if node.node != ZOOKEEPER)
    states = {broker.state for broker in brokers}
    for_java, for_topology = cluster.client_files()
    return ClusterStatus(
        name=cluster.name,
        cluster_id=cluster.cluster_id,
        bootstrap=cluster.bootstrap,
        security=cluster.spec.security,
        state=states.pop() if len(states) == 1 else LabState.PARTLY,
        memory_bytes=sum(node.memory_bytes for node in nodes),
        client_properties=str(for_java),
        client_yaml=str(for_topology),
        brokers=brokers,
        versions=cluster.versions,
        zookeeper=next((node for node in nodes if node.node == ZOOKEEPER), None),
    )


def _brokers(clusters: Iterable[LabKafkaCluster]) -> list[LabBroker]:
    return [LabBroker(cluster, node) for cluster in clusters for node in cluster.processes]


TIMEOUT = 180.0  # a broker that died is reported at once; the timeout is for busy machines
STOP_GRACE = 8.0
WAIT_S = 60.0  # start and down wait so long for another command on the lab; a second `up` fails at once


class Lab:
    """Runs the clusters of one folder. Its methods raise LabError."""

    def __init__(self, home: Path, *, report: Report = silent) -> None:
        self.home = home.absolute()
        self.report = report
        self.kdc = Kdc(self.home)

    @property
    def clusters(self) -> dict[str, LabKafkaCluster]:
        """The clusters that exist now, by name: other commands create and remove them meanwhile."""
        return create.load_all(self.home)

    def up(self, specs: Sequence[LabClusterSpec], *, timeout: float = TIMEOUT) -> None:
        """Brings these clusters up: creates missing ones and starts stopped ones.

        Running clusters stay unchanged. Once it returns, every broker has answered. If it fails or is
        interrupted, no broker that it started is left running.
        """
        with changing(self.home, "repl lab up"):
            clusters = self.clusters
            for spec in specs:
                if spec.name in clusters:
                    create.require_same(clusters[spec.name], spec)
            new = [spec for spec in specs if spec.name not in clusters]
            old = [clusters[spec.name] for spec in specs if spec.name in clusters]
            if any(spec.security.kerberos for spec in specs):
                require_programs()
                if not self.kdc.exists:
                    self.kdc.create()
            kits = self._kits(
                [spec.version for spec in new] + [version for cluster in old for version in cluster.versions]
            )
            for kit in kits.values():
                ensure_archive(kit, functools.partial(self._train, kit))
            made = create.create(self.home, new, clusters.values(), kits)
            clusters |= {cluster.name: cluster for cluster in made}
            try:
                self._launch(kits, _brokers(clusters[spec.name] for spec in specs), timeout)
            except BaseException:
                for cluster in made:
                    create.discard(cluster)
                raise
            create.write_topology(self.home, clusters)

    def start(self, address: str, *, version: str | None = None, timeout: float = TIMEOUT) -> None:
        """Starts a cluster (dc1) or one of its brokers (dc1:2) with its existing data.

        With a version, stopped brokers start with that version of Kafka from then on.
        """
        with changing(self.home, "repl lab start", WAIT_S):
            if version is not None:
                self._change_version(self._find(address), version)
            brokers = self._find(address)
            self._launch(self._kits(broker.node.version for broker in brokers), brokers, timeout)

    def stop(self, address: str) -> None:
        """Stops brokers with SIGTERM, so that they hand over what they lead; the data stays."""
        stop([broker.mark for broker in self._find(address)], STOP_GRACE)

    def kill(self, address: str) -> None:
        """Kills brokers with SIGKILL, like a power cut; the data stays."""
        processes.kill([broker.mark for broker in self._find(address)])

    def pause(self, address: str) -> None:
        """Stops brokers with SIGSTOP: they keep their connections and answer nothing."""
        processes.freeze(self._running(address))

    def unpause(self, address: str) -> None:
        """Continues paused brokers."""
        for process in self._running(address):
            processes.send(process, signal.SIGCONT)

    def status(self) -> LabStatus:
        """Returns the state of all clusters."""
        return probe_clusters(self.home, list(self.clusters.values()))

    def down(self, *, purge: bool = False) -> tuple[str, ...]:
        """Stops every broker; with `purge` their data is deleted, too. Returns the names of the clusters.

        It stops the clusters of other versions of the lab, too.
        """
        if not self.home.exists():
            return ()
        with changing(self.home, "repl lab down", WAIT_S):
            running = create.marks(self.home)
            stop([mark for marks in running.values() for mark in marks], 0 if purge else STOP_GRACE)
            self.kdc.stop()
            if purge:
                for folder in self.home.iterdir():
                    if folder.is_dir() and ours(folder):
                        shutil.rmtree(folder)
                create.topology_file(self.home).unlink(missing_ok=True)
                (self.home / "lock").unlink()
                with suppress(OSError):  # the folder holds other files, which must stay
                    self.home.rmdir()
        return tuple(running)

    def tool_command(self, cluster: str, tool: str, *arguments: str) -> list[str]:
        """Returns the command that runs one of Kafka's own tools against a cluster.

        The package may be omitted. The bootstrap servers are added; `{client}` in an argument becomes the
        path of the file with the client settings.
        """
        kafka_cluster = self._cluster(cluster)
        for_java, _ = kafka_cluster.client_files()
        kit = find_kit(self.report, kafka_cluster.versions[0])
        main = main_class(kit.jars, tool)
        return [
            *kit.command(
                *kafka_cluster.logging_options(kit.version),
                *kafka_cluster.login_options,
                "-XX:TieredStopAtLevel=1",
            ),
            main,
            *(bootstrap_flag(main, kit.version), kafka_cluster.bootstrap),
            *(argument.replace("{client}", str(for_java)) for argument in arguments),
        ]

    def _kits(self, versions: Iterable[str]) -> dict[str, Kit]:
        return {version: find_kit(self.report, version) for version in dict.fromkeys(versions)}

    def _change_version(self, brokers: Sequence[LabBroker], version: str) -> None:
        """Stores another version for stopped brokers. Raises LabError."""
        cluster = brokers[0].cluster
        running = processes.find(cluster.marks)
        if KafkaVersion.of(version).zookeeper != (cluster.zookeeper is not None):
            raise LabError(
                f"{cluster.name} cannot change between ZooKeeper and KRaft",
                "repl lab down --purge, and up with the other version",
                where=cluster.name,
            )
        for broker in brokers:
            if broker.mark in running and broker.node.version != version:
                raise LabError(
                    f"{broker} runs with {broker.node.version}", f"stop it first: repl lab stop {broker}"
                )
        changed = {broker.node.id for broker in brokers}
        nodes = tuple(
            replace(node, version=version) if node.id in changed else node for node in cluster.nodes
        )
        upgraded = replace(cluster, nodes=nodes)
        create.store(replace(upgraded, spec=replace(cluster.spec, version=upgraded.versions[0])))

    def _launch(self, kits: Kits, brokers: Sequence[LabBroker], timeout: float) -> None:
        """Starts those brokers that do not run and continues paused ones. Raises LabError."""
        running = processes.find([broker.mark for broker in brokers])
        for process in running.values():
            if process.paused:
                processes.send(process, signal.SIGCONT)
        missing = [broker for broker in brokers if broker.mark not in running]
        for broker in missing:
            create.require_ports(broker.cluster, [broker.node])
        what = f"starting {', '.join(str(broker) for broker in missing)}"
        if missing:
            self.report(what, 0, len(missing))
        with self._served_logins(brokers):
            launch(kits, missing, timeout)
        if missing:
            self.report(what, len(missing), len(missing))

    @contextmanager
    def _served_logins(self, brokers: Sequence[LabBroker]) -> Iterator[None]:
        """Starts the KDC where these brokers need it; it is stopped again if they do not come up."""
        needing = [broker for broker in brokers if broker.cluster.spec.security.kerberos]
        started = bool(needing) and self.kdc.process is None
        if started:
            self.kdc.start(needing[0].cluster.spec.prefix)
        try:
            yield
        except BaseException:
            if started:
                self.kdc.stop()
            raise

    def _train(self, kit: Kit, scratch: Path, archive: Path) -> None:
        """Runs a broker briefly to archive its loaded classes, so that later starts are faster."""
        version = str(kit.version)
        what = f"preparing Kafka {version}, once"
        self.report(what, 0, 1)
        scratch_lab = Lab(scratch)
        spec = LabClusterSpec("once", jvm=(f"-XX:ArchiveClassesAtExit={archive}",), version=version)
        scratch.mkdir()
        made = create.create(scratch, [spec], (), {version: kit})
        marks = [mark for cluster in made for mark in cluster.marks]
        try:
            scratch_lab._launch({version: kit}, _brokers(made), TIMEOUT)
            stop(marks, TIMEOUT)  # the archive is written at the end
        finally:
            stop(marks, 0)
        self.report(what, 1, 1)

    def _running(self, address: str) -> list[LabProcess]:
        brokers = self._find(address)
        running = processes.find([broker.mark for broker in brokers])
        stopped = [broker for broker in brokers if broker.mark not in running]
        if stopped:
            raise LabError(f"{stopped[0]} does not run", f"repl lab start {stopped[0]}")
        return [running[broker.mark] for broker in brokers]

    def _cluster(self, name: str) -> LabKafkaCluster:
        clusters = self.clusters
        if name in clusters:
            return clusters[name]
        raise LabError(
            f"there is no cluster {name!r} in this lab",
            f"it has: {', '.join(clusters)}" if clusters else "bring it up first: repl lab up",
            where=str(self.home),
        )

    def _find(self, address: str) -> list[LabBroker]:
        """Returns the brokers of an address: a cluster (dc1) or one broker (dc1:2). Raises LabError."""
        name, _, number = address.partition(":")
        cluster = self._cluster(name)
        if cluster.zookeeper is not None and number == "zookeeper":
            return [LabBroker(cluster, cluster.zookeeper)]
        chosen = [node for node in cluster.processes if not number or (str(node.id) == number and node.id)]
        if not chosen:
            raise LabError(
                f"{name} has no broker {number!r}", f"it has 1 to {len(cluster.nodes)}", where=str(self.home)
            )
        return [LabBroker(cluster, node) for node in chosen]
