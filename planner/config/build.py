"""What was read, without mistakes → the model."""

import re
from typing import Any, Literal

from planner.config.build_flow import flow_of
from planner.config.digest import digest_of
from planner.config.language.fields import NamedReference, ParsedRecord
from planner.config.parts import TopologyParts
from planner.config.settings import value_as_text
from planner.model.diagnostic import SourceLocation
from planner.model.topology import (
    Acl,
    AclRule,
    Cluster,
    Flow,
    Internal,
    Job,
    OnRemove,
    Policies,
    Requirement,
    Timestamps,
    Topic,
    Topology,
)

RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "delegation_token": "DELEGATION_TOKEN",
    "user": "USER",
}
THE_CLUSTER = "kafka-cluster"  # the only name that Kafka has for it
JOB = Job("")  # what a job has that says nothing
_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|>|<)?\s*(.*?)\s*", re.DOTALL)


def topology_of(parts: TopologyParts) -> Topology:
    """Sorted by name throughout: the order of keys, entries and files means nothing."""
    root = parts.root
    built = sorted((flow_of(flow) for flow in parts.flows), key=lambda flow: flow.name)
    topology = Topology(
        name=root["name"],
        clusters={name: _cluster(name, parts.clusters[name]) for name in sorted(parts.clusters)},
        topics=tuple(sorted((one for topic in parts.topics for one in topics_of(topic)), key=_topic_order)),
        acls=tuple(sorted((one for acl in parts.acls for one in acls_of(acl)), key=_acl_order)),
        flows={flow.name: flow for flow in built},
        jobs=_jobs(parts.jobs, built),
        internal=_internal(root["internal"]),
        policies=_policies(root["policies"]),
    )
    return digest_of(topology)


def _internal(fields: ParsedRecord) -> Internal:
    kept: ParsedRecord = fields["timestamps"]
    timestamps = Timestamps(
        kept.get("replication"), kept.get("retention"), kept["partitions"], kept["max_per_partition"]
    )
    return Internal(fields.get("replication"), fields["retention"], timestamps)


def _topic_order(topic: Topic) -> tuple[str, str]:
    return topic.cluster, topic.name


def _acl_order(acl: Acl) -> AclRule:
    return acl.rule


def _cluster(name: str, fields: ParsedRecord) -> Cluster:
    bootstrap = ",".join(part.strip() for text in fields["bootstrap"] for part in text.split(","))
    return Cluster(name, bootstrap, fields.get("id"), fields.get("client") or {}, fields.source)


def topics_of(fields: ParsedRecord) -> list[Topic]:
    """One for each cluster that is named."""
    return [
        Topic(
            name=fields["name"],
            cluster=cluster.text,
            partitions=fields.get("partitions"),
            replication=fields.get("replication"),
            config=fields.get("config") or {},
            protect=fields["protect"],
            on_remove=OnRemove(fields["on_remove"]),
            source=fields.place("name"),
        )
        for cluster in fields["cluster"]
    ]


def acls_of(fields: ParsedRecord) -> list[Acl]:
    """Each operation on each name at each cluster is one binding."""
    resources = [(kind, name) for key, kind in RESOURCES.items() for name in fields.get(key) or ()]
    if fields["whole_cluster"]:
        resources.append(("CLUSTER", THE_CLUSTER))
    operations: list[tuple[Literal["ALLOW", "DENY"], str]] = [
        *(("ALLOW", operation) for operation in fields.get("allow") or ()),
        *(("DENY", operation) for operation in fields.get("deny") or ()),
    ]
    return [
        Acl(
            AclRule(
                cluster=cluster.text,
                resource_type=kind,
                resource=name,
                pattern="PREFIXED" if fields["prefixed"] and kind != "CLUSTER" else "LITERAL",
                principal=fields["principal"],
                host=fields["host"],
                operation=operation,
                permission=permission,
            ),
            fields.source,
        )
        for cluster in fields["cluster"]
        for kind, name in resources
        for permission, operation in operations
    ]


def _jobs(declared: dict[str, ParsedRecord], flows: list[Flow]) -> dict[str, Job]:
    """Those that are written down, and for every other job that a flow names one with the defaults."""
    names = sorted({*declared, *(flow.job for flow in flows)})
    return {name: _job(name, declared[name]) if name in declared else Job(name) for name in names}


def _job(name: str, fields: ParsedRecord) -> Job:
    launcher: str = fields["launcher"]
    metrics: ParsedRecord | None = fields.get("metrics")
    return Job(
        name=name,
        launcher=launcher,
        master=fields.get("master") or ("yarn" if launcher == "yarn" else JOB.master),
        slots="auto" if fields["slots"] == "auto" else int(fields["slots"]),
        memory=fields["memory"],
        metrics_port=metrics["port"] if metrics else None,
        metrics_host=metrics["host"] if metrics else JOB.metrics_host,
        metrics_partitions=metrics["partitions"] if metrics else JOB.metrics_partitions,
        conf=fields.get("conf") or {},
        options=fields.get("options") or {},
        source=fields.source,
    )


def _policies(fields: ParsedRecord) -> Policies:
    require: dict[str, NamedReference] = fields.get("require") or {}
    return Policies(
        fields["max_deletes"],
        tuple(
            requirement(subject, require[subject].text, require[subject].source)
            for subject in sorted(require)
        ),
    )


def requirement(subject: str, text: str, source: SourceLocation | None) -> Requirement:
    found = _COMPARISON.fullmatch(text)
    assert found is not None
    operator: Any = found[1] or "=="
    return Requirement(subject, operator, value_as_text(subject, found[2]), source)
