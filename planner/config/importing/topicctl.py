"""Converts a folder of topicctl: its clusters, topics and ACLs."""

from collections.abc import Sequence

from planner.config.importing.connect import ConvertedTopology, NoCounterpart
from planner.config.importing.declared import DeclaredResources
from planner.config.importing.document import Fields, trees
from runtime.contract.client.stores import Setting

WHAT = "the folder with topicctl's cluster.yaml and topics"
_ROWS = (
    NoCounterpart("description|labels|consumers|region|environment", "it is text for people"),
    NoCounterpart(
        "placement|migration",
        "where replicas are is the cluster's: kafka-reassign-partitions.sh moves them",
        loss=True,
    ),
    NoCounterpart(
        "zk.*|versionMajor|defaultThrottleMB|defaultRetentionDropStepDuration",
        "brokers are asked, never ZooKeeper",
    ),
    NoCounterpart("clusterID", "the id is not pinned: repl import CLUSTER reads it from the cluster"),
    NoCounterpart("retentionDropStepDuration", "retention is set in one step"),
)


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts the files of a folder. Failure: they declare no topic and no ACL."""
    declared = DeclaredResources()
    rest: list[Fields] = []
    for file, text in files:
        for node in trees(text, file, WHAT):
            fields = Fields.of(node, file, declared.notes)
            if "bootstrapAddrs" in fields.below("spec").values:
                _cluster(fields, declared)
            elif fields:
                rest.append(fields)
    for fields in rest:
        _resource(fields, declared)
    return declared.topology(name, "topicctl")


def _cluster(fields: Fields, declared: DeclaredResources) -> None:
    meta, spec = fields.below("meta"), fields.below("spec")
    name = meta.text("name") or "kafka"
    tls, sasl = spec.below("tls"), spec.below("sasl")
    encrypted = tls.flag(False, "enabled")
    client: dict[str, Setting] = {"security.protocol": "SSL"} if encrypted else {}
    if sasl.flag(False, "enabled"):
        mechanism = (sasl.text("mechanism") or "PLAIN").upper()
        login = declared.login(name, mechanism, tls=encrypted)
        for key in ("username", "password"):
            if sasl.text(key) is not None:
                variable = login[f"sasl.{key}"]
                assert isinstance(variable, dict)
                sasl.note(
                    key, f"it is not copied: set the environment variable {variable['env']}", loss=False
                )
        client = login
    declared.cluster(name, fields, ",".join(spec.texts("bootstrapAddrs")), client)
    for part in (tls, sasl, meta, spec):
        part.explain(_ROWS)


def _resource(fields: Fields, declared: DeclaredResources) -> None:
    meta, spec = fields.below("meta"), fields.below("spec")
    acls = spec.each("acls")
    if not acls and "partitions" not in spec.values:
        fields.note("spec", "it is no cluster, topic or list of ACLs of topicctl: it is left out")
        return
    cluster = declared.cluster(meta.text("cluster") or "kafka", meta)
    name = meta.text("name")
    for acl in acls:
        resource = acl.below("resource")
        declared.acl(
            acl,
            cluster,
            kind=resource.text("type"),
            name=resource.text("name"),
            pattern=resource.text("patternType"),
            principal=resource.text("principal"),
            host=resource.text("host"),
            operations=acl.texts("operations"),
            permission=resource.text("permission"),
        )
        resource.explain()
        acl.explain()
    if not acls:
        config = spec.settings("settings")
        if minutes := spec.number("retentionMinutes"):
            config.setdefault("retention.ms", str(minutes * 60_000))
        declared.topic(
            meta, name, cluster, spec.number("partitions"), spec.number("replicationFactor"), config
        )
    for part in (meta, spec):
        part.explain(_ROWS)
