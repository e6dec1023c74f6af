"""What a topology becomes on lab clusters, and how that differs from the topology. Pure.

Each cluster is copied with its version, its logins and its encryption, as far as the lab has them. Every
difference is a note: one sentence in the report.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from planner.graph.acl_protection import job_principal
from planner.graph.lints.transforms import changed_fields_of
from planner.model.topology import (
    Acl,
    Cluster,
    Fence,
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
    MECHANISMS,
    SCRAM,
    KafkaVersion,
    LabClusterSpec,
    Security,
)
from runtime.contract.client.keys import CREDENTIALS, LOCATIONS
from runtime.contract.client.stores import Setting

OTHER = "drill-other"  # a login that is not the job's
JOB = "repl-job"  # the job's login where the lab can't have the declared one
_RESERVED = {ADMIN, "ANONYMOUS", "broker", "controller", OTHER}
_USER = re.compile(r"User:([A-Za-z0-9_-]{1,100})")
_DEFAULT_MECHANISM = "GSSAPI"  # of librdkafka
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
_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
# Settings that say where a cluster is and how clients log in. The lab has its own.
_REPLACED = CREDENTIALS - {"client.id"} | LOCATIONS | {"broker.address.family", "client.dns.lookup"}
_REPLACED_PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")


@dataclass(frozen=True, slots=True)
class ClusterCopy:
    """How a cluster is copied: the cluster of the lab, and as whom the jobs log in.

    `why` says what differs in the logins; it is empty where nothing does. `job` is the user of the jobs, None
    where brokers know no principals, and `declared` the principal that the topology names. `exact`: jobs have
    the rights that `acls` declare for it, and no others.
    """

    spec: LabClusterSpec
    why: str
    job: str | None
    declared: str | None
    exact: bool

    @property
    def login(self) -> str:
        """How clients log in, in words."""
        security = self.spec.security
        if security.sasl:
            return f"{security.protocol} with {self.spec.mechanism}"
        named = {Security.TLS: "mutual TLS", Security.SERVER_TLS: "TLS"}
        return named.get(security, security.protocol)

    @property
    def principal(self) -> str | None:
        """The principal of the jobs."""
        return None if self.job is None else f"User:{self.job}"


def cluster_copies(topology: Topology) -> dict[str, ClusterCopy]:
    """Returns how each cluster is copied: as it is declared, where the lab can."""
    with_acls = needs_authorizer(topology)
    return {name: _copy_of(cluster, topology, with_acls) for name, cluster in topology.clusters.items()}


def needs_authorizer(topology: Topology) -> bool:
    """Returns whether brokers need an authorizer for what the topology declares."""
    protected = any(flow.protect != "off" or flow.acls_sync for flow in topology.flows.values())
    fenced = any(cutover.fence is Fence.ACL for cutover in topology.cutovers)
    return bool(topology.acls) or protected or fenced


def _copy_of(cluster: Cluster, topology: Topology, with_acls: bool) -> ClusterCopy:
    client = cluster.client
    version = topology.drill.versions.get(cluster.name, KAFKA_VERSION)
    protocol = str(client.get("security.protocol", "PLAINTEXT")).upper()
    sasl, tls = protocol.startswith("SASL_"), protocol.endswith("SSL")
    certificates = any(key in client for key in _CERTIFICATES)
    mechanism, why = SCRAM, []
    if tls and not KafkaVersion.of(version).pem:
        tls = False
        why.append(f"no TLS, because Kafka {version} can't read the keys of the lab")
    if sasl:
        security = Security.SASL_TLS if tls else Security.SASL
        named = client.get("sasl.mechanism", client.get("sasl.mechanisms", _DEFAULT_MECHANISM))
        mechanism = str(named).upper()
        if mechanism not in MECHANISMS:
            why.append(f"{SCRAM} in place of {mechanism}, which the lab does not have")
            mechanism = SCRAM
        if tls and certificates:
            why.append("no certificates of clients, which log in by name")
    elif with_acls:
        security = Security.TLS if tls else Security.SASL
        if not (tls and certificates):
            what = "certificates of clients" if tls else f"a login by {SCRAM}"
            why.append(f"{what}, because ACLs need principals")
    elif tls:
        security = Security.TLS if certificates else Security.SERVER_TLS
    else:
        security = Security.PLAIN
    declared = job_principal(cluster)
    job, exact = None, False
    if security not in (Security.PLAIN, Security.SERVER_TLS):
        match = None if declared is None else _USER.fullmatch(declared)
        job = match[1] if match is not None and match[1] not in _RESERVED else JOB
        exact = topology.drill.job_rights is JobRightsMode.DECLARED and any(
            (acl.rule.cluster, acl.rule.principal, acl.rule.permission) == (cluster.name, declared, "ALLOW")
            for acl in topology.acls
        )
    opened = job is not None and cluster.allow_everyone_if_no_acl_found
    spec = LabClusterSpec(
        cluster.name,
        brokers=topology.drill.brokers,
        security=security,
        mechanism=mechanism,
        authorizer=job is not None,
        users=(OTHER,) if job is None else (OTHER, job),
        properties={"allow.everyone.if.no.acl.found": "true"} if opened else {},
        version=version,
        jvm=("-XX:TieredStopAtLevel=1",),  # a drill ends before the second compiler has paid off
    )
    return ClusterCopy(spec, "; ".join(why), job, declared, exact)


def scaled_down(
    topology: Topology, by_registry: Collection[str] = (), files: Path = Path("files")
) -> tuple[Topology, tuple[str, ...]]:
    """Returns the topology as the lab's brokers can hold it, and what that changes.

    `by_registry` are the flows that go on to ask their schema registry. Each endpoint has a folder below
    `files`: a drill must not write to the files of production.
    """
    brokers = topology.drill.brokers
    copies = cluster_copies(topology)
    jobs = {flow.job for flow in topology.job_flows.values()} | set(topology.jobs)
    declared = {name: topology.job(name) for name in sorted(jobs)}

    def replication(replicas: int | None) -> int | None:
        """None is the broker's default, which is one on one broker."""
        return None if replicas is None or brokers == 1 else min(replicas, brokers)

    def topic_copy(topic: Topic) -> Topic:
        config = dict(topic.config)
        in_sync = config.pop(_IN_SYNC, None)
        if in_sync is not None and brokers > 1:
            if in_sync.isdecimal():  # what is no number is refused by the brokers
                replicas = topic.replication or _USUAL_REPLICATION
                # As many replicas may be lost as are declared.
                in_sync = str(max(1, int(in_sync) - (replicas - min(replicas, brokers))))
            config[_IN_SYNC] = in_sync
        return replace(topic, replication=replication(topic.replication), config=config)

    def acl_copy(acl: Acl) -> Acl:
        """A rule for the jobs is for their login in the copy. The lab's clients connect from this machine."""
        cluster = copies.get(acl.rule.cluster)
        if cluster is None or cluster.principal is None or acl.rule.principal != cluster.declared:
            return acl
        return replace(acl, rule=replace(acl.rule, principal=cluster.principal, host="*"))

    def flow_copy(flow: Flow) -> Flow:
        transform = flow.transform
        if transform is not None and flow.name not in by_registry:
            transform = structs.replace(
                transform,
                key=structs.replace(transform.key, registry=None),
                value=structs.replace(transform.value, registry=None),
            )
        return structs.replace(flow, replication=replication(flow.replication), transform=transform)

    def job_copy(job: Job) -> Job:
        flows = [flow for flow in topology.job_flows.values() if flow.job == job.name]
        transforms = sum(flow.transform is not None for flow in flows)
        # Each flow with a transform has a slot of its own, all others share one.
        cores = max(_FEWEST_CORES, transforms + (transforms < len(flows)))
        return structs.replace(
            job,
            launcher="local",
            master=f"local[{cores}]",
            memory=_MEMORY,
            standby=0,
            conf={},
            options={},
            metrics=None,
        )

    copy = replace(
        topology,
        clusters={
            name: structs.replace(cluster, id=None, client={}, principal=copies[name].principal)
            for name, cluster in topology.clusters.items()
        },
        topics=tuple(map(topic_copy, topology.topics)),
        acls=tuple(map(acl_copy, topology.acls)),
        flows={name: flow_copy(flow) for name, flow in topology.flows.items()},
        file_flows={name: flow_copy(flow) for name, flow in topology.file_flows.items()},
        endpoints={
            name: structs.replace(endpoint, folder=str(files / name), client={})
            for name, endpoint in topology.endpoints.items()
        },
        jobs={name: job_copy(job) for name, job in declared.items()},
        internal=structs.replace(topology.internal, replication=replication(topology.internal.replication)),
        policies=replace(topology.policies, require=(), rules=()),
        # The samples were read: the copy is in another folder.
        drill=replace(topology.drill, samples=()),
    )
    return copy, tuple(_notes(topology, copies, declared.values()))


def client_of(cluster: Cluster, lab: Mapping[str, str | dict[str, str]]) -> dict[str, Setting]:
    """Returns the client settings of a copied cluster: the lab's way in, and the cluster's other settings.

    `lab` are the lab's settings. Logins are variables, so that jobs and commands have their own.
    """
    others = {
        key: value
        for key, value in cluster.client.items()
        if isinstance(value, str) and key not in _REPLACED and not key.startswith(_REPLACED_PREFIXES)
    }
    ways = {key: value for key, value in lab.items() if isinstance(value, str) and key not in _LOGIN}
    variables = login_variables(cluster.name, lab)
    return others | ways | {_LOGIN[key]: {"env": name} for key, name in variables.items()}


def login_variables(cluster: str, lab: Collection[str]) -> dict[str, str]:
    """Returns the environment variable that holds each setting of a login, by the lab's name of the setting.

    A location stands for the text of its file.
    """
    return {key: f"{_VARIABLES}{secret_variable(cluster, _LOGIN[key])}" for key in lab if key in _LOGIN}


def _notes(topology: Topology, copies: Mapping[str, ClusterCopy], jobs: Iterable[Job]) -> Iterator[str]:
    brokers = topology.drill.brokers
    if brokers == 1:
        small = "each cluster is scaled down to one broker, or what a step needs"
        yield f"{small}; replication and min.insync.replicas are left out"
    else:
        small = f"each cluster is scaled down to {brokers} brokers, or what a step needs"
        yield f"{small}; topics have at most {brokers} replicas, and min.insync.replicas falls with them"
    yield from _cluster_notes(topology, copies)
    for name, endpoint in sorted(topology.endpoints.items()):
        untried = ": the store, its settings and its rights are not tried" if endpoint.in_store else ""
        yield f"{name}: an empty folder of the drill in place of {endpoint.folder}{untried}"
    if any(job.launcher != "local" for job in jobs):
        yield "jobs run on this machine, whatever their launcher is"
    if lossy := [name for name, flow in sorted(topology.flows.items()) if changed_fields_of(flow)]:
        yield (
            f"{', '.join(lossy)}: the failback is left out, because values that a transform changes do not"
            " compare equal after a round trip"
        )


def _cluster_notes(topology: Topology, copies: Mapping[str, ClusterCopy]) -> Iterator[str]:
    by_version: dict[str, list[str]] = {}
    by_login: dict[tuple[str, str], list[str]] = {}
    for name, copy in copies.items():
        by_version.setdefault(topology.drill.versions.get(name, ""), []).append(name)
        by_login.setdefault((copy.login, copy.why), []).append(name)
    undeclared = by_version.pop("", [])
    for version, names in by_version.items():
        yield f"{', '.join(names)}: Kafka {version}, as drill.versions says"
    if undeclared:
        version = f"Kafka {KAFKA_VERSION}, the lab's own version"
        yield f"{', '.join(undeclared)}: {version}; drill.versions may name another"
    for (login, why), names in by_login.items():
        if why:
            yield f"{', '.join(names)}: clients connect by {login} ({why})"
        elif login != Security.PLAIN.protocol:
            yield f"{', '.join(names)}: clients connect by {login}, as declared, with secrets of the lab"
    if needs_authorizer(topology):
        yield (
            "the lab's brokers have an authorizer: acls, acls.sync, protect and fences are applied, and tried"
            f" with a principal of the drill, {OTHER}; commands and its other clients are super users"
        )
    for name, copy in copies.items():
        if copy.job is not None:
            yield f"{name}: jobs run as {_rights(name, copy, topology)}"


def _rights(name: str, copy: ClusterCopy, topology: Topology) -> str:
    """Returns as whom the jobs run, and with which rights."""
    renamed = f" in place of {copy.declared}" if copy.declared not in (None, copy.principal) else ""
    if copy.exact:
        return f"{copy.principal}{renamed}, with exactly the rights that acls declare"
    if copy.declared is None:
        why = f"clusters.{name}.principal is not set"
    elif topology.drill.job_rights is JobRightsMode.DOCUMENTED:
        why = "drill.job_rights says so"
    else:
        why = "acls declare none for it"
    return (
        f"{copy.principal}{renamed}, with the rights that docs/operations.md lists"
        f" ({why}); whether they have them in production is not tried"
    )
