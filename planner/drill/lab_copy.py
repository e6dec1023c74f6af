"""What a topology becomes on lab clusters, and how that differs from the topology. Pure.

Each cluster is copied with its version, its logins and its encryption, as far as the lab has them. Every
difference is a note: one sentence in the report.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from planner.graph.acl_protection import job_principal
from planner.graph.lints.transforms import changed_fields_of
from planner.model.topology import (
    Acl,
    Cluster,
    Flow,
    Job,
    JobRightsMode,
    Topic,
    Topology,
    secret_variable,
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
from runtime.contract.client.stores import Setting
from runtime.contract.spec.transform import TransformSpec

OTHER = "drill-other"  # a login that is not the job's
JOB = "repl-job"  # the job's login where the lab can't have the declared one
_RESERVED = {ADMIN, "ANONYMOUS", "broker", "controller", OTHER}
_USER = re.compile(r"User:([A-Za-z0-9_-]{1,100})")
_MEMORY = "512m"
_FEWEST_CORES = 2
_IN_SYNC = "min.insync.replicas"
_USUAL_REPLICATION = 3  # where the broker's default is not known
_VARIABLES = "REPL_DRILL_"
# The settings of a login, by the lab's names, and the names under which a variable may hold their values.
_LOGIN = {
    "sasl.username": "sasl.username",
    "sasl.password": "sasl.password",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem")
# Settings that say where a cluster is and how clients log in. The lab has its own.
_REPLACED = CREDENTIALS - {"client.id"} | LOCATIONS | {"broker.address.family", "client.dns.lookup"}
_REPLACED_PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")


_WITH_PRINCIPALS = {Security.SASL, Security.SASL_TLS, Security.TLS}


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


@dataclass(frozen=True, slots=True)
class JobLogin:
    """The job's login at the copy of a cluster. `declared` is the principal that the topology names.

    `exact`: the job has the rights that `acls` declare for it, and no others.
    """

    user: str
    declared: str | None
    exact: bool

    @property
    def principal(self) -> str:
        return f"User:{self.user}"


def job_logins(topology: Topology) -> dict[str, JobLogin]:
    """Returns the job's login of each cluster whose copy knows principals, by cluster."""
    return {
        name: _job_login(cluster, topology)
        for name, cluster in topology.clusters.items()
        if login_of(cluster, topology).security in _WITH_PRINCIPALS
    }


def _job_login(cluster: Cluster, topology: Topology) -> JobLogin:
    declared = job_principal(cluster)
    match = None if declared is None else _USER.fullmatch(declared)
    user = match[1] if match is not None and match[1] not in _RESERVED else JOB
    allowed = any(
        (one.rule.cluster, one.rule.principal, one.rule.permission) == (cluster.name, declared, "ALLOW")
        for one in topology.acls
    )
    return JobLogin(user, declared, allowed and topology.drill.job_rights is JobRightsMode.DECLARED)


def scaled_down(topology: Topology, by_registry: Collection[str] = ()) -> tuple[Topology, tuple[str, ...]]:
    """Returns the topology as the lab's brokers can hold it, and what that changes.

    `by_registry` are the flows that go on to ask their schema registry.
    """
    brokers = topology.drill.brokers
    jobs = {flow.job for flow in topology.job_flows.values()} | set(topology.jobs)
    declared = {name: topology.job(name) for name in sorted(jobs)}
    copy = replace(
        topology,
        clusters={name: _cluster(one, topology) for name, one in topology.clusters.items()},
        topics=tuple(_topic(one, brokers) for one in topology.topics),
        acls=tuple(_acl(one, job_logins(topology)) for one in topology.acls),
        flows={name: _flow(one, brokers, by_registry) for name, one in topology.flows.items()},
        file_flows={name: _flow(one, brokers, by_registry) for name, one in topology.file_flows.items()},
        jobs={
            name: structs.replace(
                one,
                launcher="local",
                master=f"local[{_cores(topology, name)}]",
                memory=_MEMORY,
                standby=0,
                conf={},
                options={},
                metrics=None,
            )
            for name, one in declared.items()
        },
        internal=structs.replace(
            topology.internal, replication=_replication(topology.internal.replication, brokers)
        ),
        policies=replace(topology.policies, require=(), rules=()),
        # The samples were read: the copy is in another folder.
        drill=replace(topology.drill, samples=()),
    )
    return copy, tuple(_notes(topology, declared.values()))


def _flow(flow: Flow, brokers: int, by_registry: Collection[str]) -> Flow:
    return structs.replace(
        flow,
        replication=_replication(flow.replication, brokers),
        transform=flow.transform if flow.name in by_registry else _without_registry(flow.transform),
    )


def with_own_folders(topology: Topology, folder: Path) -> Topology:
    """Returns the topology with a folder below this one in place of each endpoint's folder or bucket.

    A drill must not write to the files of production.
    """
    endpoints = {
        name: structs.replace(one, folder=str(folder / name), client={})
        for name, one in topology.endpoints.items()
    }
    return replace(topology, endpoints=endpoints)


def lab_clusters(
    topology: Topology,
    brokers: Mapping[str, int] | None = None,
    links: Mapping[str, Mapping[int, str]] | None = None,
) -> list[LabClusterSpec]:
    """Returns the lab cluster of each cluster of a topology.

    `brokers` are what steps need, by cluster. `links` are the addresses of proxies, by cluster and broker.
    """
    logins = job_logins(topology)

    def spec(cluster: Cluster) -> LabClusterSpec:
        name = cluster.name
        login = login_of(cluster, topology)
        job = logins.get(name)
        open_ = job is not None and cluster.allow_everyone_if_no_acl_found
        return LabClusterSpec(
            name,
            brokers=max(topology.drill.brokers, (brokers or {}).get(name, 1)),
            security=login.security,
            mechanism=login.mechanism,
            authorizer=job is not None,
            users=(OTHER,) if job is None else (OTHER, job.user),
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

    `lab` are the lab's settings. Logins are variables, so that jobs and commands have their own.
    """
    own = {
        key: value
        for key, value in cluster.client.items()
        if isinstance(value, str) and key not in _REPLACED and not key.startswith(_REPLACED_PREFIXES)
    }
    ways = {key: value for key, value in lab.items() if isinstance(value, str) and key not in _LOGIN}
    variables = login_variables(cluster.name, lab)
    return own | ways | {_LOGIN[key]: {"env": name} for key, name in variables.items()}


def login_variables(cluster: str, lab: Collection[str]) -> dict[str, str]:
    """Returns the environment variable that holds each setting of a login, by the lab's name of the setting.

    A location stands for the text of its file.
    """
    return {key: f"{_VARIABLES}{secret_variable(cluster, _LOGIN[key])}" for key in lab if key in _LOGIN}


def needs_authorizer(topology: Topology) -> bool:
    """Returns whether brokers need an authorizer for what the topology declares."""
    flows = topology.flows.values()
    return bool(topology.acls) or any(one.protect != "off" or one.acls_sync for one in flows)


def _mechanism(client: Mapping[str, Setting]) -> str:
    for key in ("sasl.mechanism", "sasl.mechanisms"):
        if key in client:
            return str(client[key]).upper()
    return "GSSAPI"  # librdkafka's default


def _joined(reasons: list[str]) -> str:
    return "; ".join(reasons)


def _cluster(cluster: Cluster, topology: Topology) -> Cluster:
    job = job_logins(topology).get(cluster.name)
    return structs.replace(cluster, id=None, client={}, principal=None if job is None else job.principal)


def _acl(acl: Acl, logins: Mapping[str, JobLogin]) -> Acl:
    """Returns the rule for the job's login in the copy. The lab's clients connect from this machine."""
    job = logins.get(acl.rule.cluster)
    if job is None or acl.rule.principal != job.declared:
        return acl
    return replace(acl, rule=replace(acl.rule, principal=job.principal, host="*"))


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


def _without_registry(transform: TransformSpec | None) -> TransformSpec | None:
    if transform is None:
        return None
    return structs.replace(
        transform,
        key=structs.replace(transform.key, registry=None),
        value=structs.replace(transform.value, registry=None),
    )


def _cores(topology: Topology, job: str) -> int:
    """Returns the cores of a job: each flow with a transform has a slot of its own, all others share one."""
    flows = [flow for flow in topology.job_flows.values() if flow.job == job]
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
            f" principal of the drill, {OTHER}; commands and other clients of the drill are super users"
        )
    yield from _rights(topology)
    for name, endpoint in sorted(topology.endpoints.items()):
        untried = ": the store, its settings and its rights are not tried" if endpoint.in_store else ""
        yield f"{name}: an empty folder of the drill in place of {endpoint.folder}{untried}"
    if any(one.launcher != "local" for one in jobs):
        yield "jobs run on this machine, whatever their launcher is"
    if lossy := [name for name, flow in sorted(topology.flows.items()) if changed_fields_of(flow)]:
        yield (
            f"{', '.join(lossy)}: the failback is left out, because values that a transform changes do not"
            " compare equal after a round trip"
        )


def _rights(topology: Topology) -> Iterator[str]:
    """Yields what rights the jobs have at each cluster whose copy knows principals."""
    for name, job in job_logins(topology).items():
        renamed = f" in place of {job.declared}" if job.declared not in (None, job.principal) else ""
        if job.exact:
            yield f"{name}: jobs run as {job.principal}{renamed}, with exactly the rights that acls declare"
            continue
        if job.declared is None:
            why = f"clusters.{name}.principal is not set"
        elif topology.drill.job_rights is JobRightsMode.DOCUMENTED:
            why = "drill.job_rights says so"
        else:
            why = "acls declare none for it"
        yield (
            f"{name}: jobs run as {job.principal}{renamed}, with the rights that docs/operations.md lists"
            f" ({why}); whether they have them in production is not tried"
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
