"""What a topology becomes on lab clusters, and how that differs from the topology. Pure.

Each cluster is copied with its version, its logins and its encryption, as far as the lab has them. Every
difference is a note: one sentence in the report.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from planner.graph.lints.transforms import changed_fields_of
from planner.model.topology import (
    Cluster,
    Job,
    Protect,
    SecretRef,
    Setting,
    Topic,
    Topology,
    Transform,
)
from planner.workflows.lab import (
    ADMIN,
    KAFKA_VERSION,
    LINK,
    MECHANISMS,
    SCRAM,
    KafkaVersion,
    LabClusterSpec,
    Listener,
    Security,
)
from runtime.contract.client.keys import CREDENTIALS, LOCATIONS

OTHER = "drill-other"  # a login that is not the job's
_MEMORY = "512m"
_FEWEST_CORES = 2
_IN_SYNC = "min.insync.replicas"
_USUAL_REPLICATION = 3  # where the broker's default is not known
_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem")
# Settings that say where a cluster is and how clients log in. The lab has its own.
_REPLACED = CREDENTIALS - {"client.id"} | LOCATIONS | {"broker.address.family", "client.dns.lookup"}
_REPLACED_PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")


class LabLogin(NamedTuple):
    """How clients reach the copy of a cluster. `why` tells what differs; it is empty where nothing does."""

    security: Security
    mechanism: str = SCRAM
    why: str = ""

    def __str__(self) -> str:
        if not self.security.sasl:
            return {Security.TLS: "mutual TLS", Security.SERVER_TLS: "TLS"}.get(
                self.security, self.security.protocol
            )
        return f"{self.security.protocol} with {self.mechanism}"


def scaled_down(topology: Topology, by_registry: Collection[str] = ()) -> tuple[Topology, tuple[str, ...]]:
    """Returns the topology as the lab's brokers can hold it, and what that changes.

    `by_registry` are the flows that go on to ask their schema registry.
    """
    brokers = topology.drill.brokers
    jobs = {flow.job for flow in topology.flows.values()} | set(topology.jobs)
    declared = {name: topology.jobs.get(name, Job(name)) for name in sorted(jobs)}
    copy = replace(
        topology,
        clusters={name: _cluster(one, topology) for name, one in topology.clusters.items()},
        topics=tuple(_topic(one, brokers) for one in topology.topics),
        flows={
            name: replace(
                flow,
                replication=_replication(flow.replication, brokers),
                transform=flow.transform if name in by_registry else _without_registry(flow.transform),
            )
            for name, flow in topology.flows.items()
        },
        jobs={
            name: replace(
                one,
                launcher="local",
                master=f"local[{_cores(topology, name)}]",
                memory=_MEMORY,
                standby=0,
                conf={},
                options={},
                metrics_port=None,
            )
            for name, one in declared.items()
        },
        internal=replace(topology.internal, replication=_replication(topology.internal.replication, brokers)),
        policies=replace(topology.policies, require=()),
        # The samples were read: the copy is in another folder.
        drill=replace(topology.drill, samples=()),
    )
    return copy, tuple(_notes(topology, declared.values()))


def lab_clusters(
    topology: Topology,
    brokers: Mapping[str, int] | None = None,
    links: Mapping[str, Mapping[int, str]] | None = None,
) -> list[LabClusterSpec]:
    """Returns the lab cluster of each cluster of a topology.

    `brokers` are what steps need, by cluster. `links` are the addresses of proxies, by cluster and broker.
    """
    authorizer = needs_authorizer(topology)

    def spec(cluster: Cluster) -> LabClusterSpec:
        name = cluster.name
        login = login_of(cluster, topology)
        open_ = authorizer and cluster.allow_everyone_if_no_acl_found
        return LabClusterSpec(
            name,
            brokers=max(topology.drill.brokers, (brokers or {}).get(name, 1)),
            security=login.security,
            mechanism=login.mechanism,
            authorizer=authorizer,
            users=(OTHER,),
            properties={"allow.everyone.if.no.acl.found": "true"} if open_ else {},
            listeners=(Listener(LINK, links[name]),) if links and name in links else (),
            version=version_of(name, topology),
            jvm=("-XX:TieredStopAtLevel=1",),  # a drill ends before the second compiler has paid off
        )

    return [spec(one) for one in topology.clusters.values()]


def version_of(cluster: str, topology: Topology) -> str:
    """Returns the version of Kafka that the copy of a cluster runs."""
    return topology.drill.versions.get(cluster, KAFKA_VERSION)


def login_of(cluster: Cluster, topology: Topology) -> LabLogin:
    """Returns how clients log in to the copy of a cluster: as at the cluster, where the lab can."""
    protocol = str(cluster.client.get("security.protocol", "PLAINTEXT")).upper()
    version = version_of(cluster.name, topology)
    sasl = protocol.startswith("SASL_")
    tls = protocol.endswith("SSL")
    why = []
    if tls and not KafkaVersion.of(version).pem:
        tls = False
        why.append(f"no TLS, because Kafka {version} can't read the keys of the lab")
    if sasl:
        login = Security.SASL_TLS if tls else Security.SASL
        mechanism = _mechanism(cluster.client)
        if mechanism not in MECHANISMS:
            why.append(f"{SCRAM} in place of {mechanism}, which the lab does not have")
            mechanism = SCRAM
        if tls and any(key in cluster.client for key in _CERTIFICATES):
            why.append("no certificates of clients, which log in by name")
        return LabLogin(login, mechanism, _joined(why))
    certificates = any(key in cluster.client for key in _CERTIFICATES)
    if needs_authorizer(topology) and not (tls and certificates):
        what = "certificates of clients" if tls else f"a login by {SCRAM}"
        why.append(f"{what}, because ACLs need principals")
        return LabLogin(Security.TLS if tls else Security.SASL, SCRAM, _joined(why))
    if tls:
        return LabLogin(Security.TLS if certificates else Security.SERVER_TLS)
    return LabLogin(Security.PLAIN, SCRAM, _joined(why))


def client_of(cluster: Cluster, lab: Mapping[str, str | dict[str, str]]) -> dict[str, Setting]:
    """Returns the client settings of a copied cluster: the lab's way in, and the cluster's other settings.

    `lab` are the lab's settings. Passwords stay in the files of the lab.
    """
    own = {
        key: value
        for key, value in cluster.client.items()
        if isinstance(value, str) and key not in _REPLACED and not key.startswith(_REPLACED_PREFIXES)
    }
    return own | {
        key: value if isinstance(value, str) else SecretRef("file", value["file"])
        for key, value in lab.items()
    }


def needs_authorizer(topology: Topology) -> bool:
    """Returns whether brokers need an authorizer for what the topology declares."""
    flows = topology.flows.values()
    return bool(topology.acls) or any(one.protect is not Protect.OFF or one.acls_sync for one in flows)


def _mechanism(client: Mapping[str, Setting]) -> str:
    for key in ("sasl.mechanism", "sasl.mechanisms"):
        if key in client:
            return str(client[key]).upper()
    return "GSSAPI"  # librdkafka's default


def _joined(reasons: list[str]) -> str:
    return "; ".join(reasons)


def _cluster(cluster: Cluster, topology: Topology) -> Cluster:
    certificates = login_of(cluster, topology).security is Security.TLS
    return replace(cluster, id=None, client={}, principal=f"User:{ADMIN}" if certificates else None)


def _topic(topic: Topic, brokers: int) -> Topic:
    config = dict(topic.config)
    if (in_sync := config.pop(_IN_SYNC, None)) is not None and brokers > 1:
        number = in_sync.isdecimal()  # what is no number is refused by the brokers
        config[_IN_SYNC] = str(_in_sync(int(in_sync), topic.replication, brokers)) if number else in_sync
    return replace(topic, replication=_replication(topic.replication, brokers), config=config)


def _replication(declared: int | None, brokers: int) -> int | None:
    """Returns how many replicas the copy has; None is the broker's default, which is one on one broker."""
    return None if declared is None or brokers == 1 else min(declared, brokers)


def _in_sync(declared: int, replication: int | None, brokers: int) -> int:
    """Returns the least replicas in sync, so that as many may be lost as are declared."""
    wanted = replication or _USUAL_REPLICATION
    return max(1, declared - (wanted - min(wanted, brokers)))


def _without_registry(transform: Transform | None) -> Transform | None:
    if transform is None:
        return None
    return replace(
        transform,
        key=replace(transform.key, registry=None),
        value=replace(transform.value, registry=None),
    )


def _cores(topology: Topology, job: str) -> int:
    """Returns the cores of a job: each flow with a transform has a slot of its own, all others share one."""
    flows = [flow for flow in topology.flows.values() if flow.job == job]
    transforms = sum(flow.transform is not None for flow in flows)
    return max(_FEWEST_CORES, transforms + (transforms < len(flows)))


def _notes(topology: Topology, jobs: Collection[Job]) -> Iterator[str]:
    brokers = topology.drill.brokers
    if brokers == 1:
        small = "each cluster is scaled down to one broker, or what a step needs"
        yield f"{small}; replication and min.insync.replicas are left out"
    else:
        small = f"each cluster is scaled down to {brokers} brokers, or what a step needs"
        yield f"{small}; topics have at most {brokers} replicas, and min.insync.replicas falls with them"
    yield from _versions(topology)
    yield from _logins(topology)
    if needs_authorizer(topology):
        yield (
            "the lab's brokers have an authorizer: acls, acls.sync and protect are applied, and tried with a"
            f" principal of the drill, {OTHER}; jobs, commands and other clients of the drill are super users"
        )
    if any(one.launcher != "local" for one in jobs):
        yield "jobs run on this machine, whatever their launcher is"
    if lossy := [name for name, flow in sorted(topology.flows.items()) if changed_fields_of(flow)]:
        yield (
            f"{', '.join(lossy)}: the failback is left out, because values that a transform changes do not"
            " compare equal after a round trip"
        )


def _versions(topology: Topology) -> Iterator[str]:
    named: dict[str, list[str]] = {}
    for name in topology.clusters:
        if name in topology.drill.versions:
            named.setdefault(topology.drill.versions[name], []).append(name)
    for version, names in named.items():
        yield f"{', '.join(names)}: Kafka {version}, as drill.versions says"
    if others := [name for name in topology.clusters if name not in topology.drill.versions]:
        own = f"Kafka {KAFKA_VERSION}, the lab's own version"
        yield f"{', '.join(others)}: {own}; drill.versions may name another"


def _logins(topology: Topology) -> Iterator[str]:
    same: dict[LabLogin, list[str]] = {}
    for name, cluster in topology.clusters.items():
        same.setdefault(login_of(cluster, topology), []).append(name)
    for login, names in same.items():
        where = ", ".join(names)
        if login.why:
            yield f"{where}: clients connect by {login} ({login.why})"
        elif login.security is not Security.PLAIN:
            yield f"{where}: clients connect by {login}, as declared, with secrets of the lab"
