"""Converts a folder of topicctl: its clusters, topics and ACLs."""

from collections.abc import Sequence

from planner.config.importing.declared import DeclaredResources
from planner.config.importing.document import ConvertedTopology, Fields, NoCounterpart, trees
from runtime.contract.client.settings import MSK_IAM
from runtime.contract.client.stores import Setting

WHAT = "the folder with topicctl's cluster.yaml and topics"
_TLS = {
    "caCertPath": "ssl.ca.location",
    "certPath": "ssl.certificate.location",
    "keyPath": "ssl.key.location",
}
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
    identity = _identity(meta, "name")
    name = declared.name(identity, meta, identity[0], "-".join(filter(None, identity)))
    tls, sasl = spec.below("tls"), spec.below("sasl")
    encrypted = tls.flag(False, "enabled")
    client: dict[str, Setting] = {"security.protocol": "SSL"} if encrypted else {}
    paths = tls.paths(_TLS) if encrypted else {}
    mechanism = (sasl.text("mechanism") or "PLAIN").upper()
    if sasl.flag(False, "enabled") and mechanism == "AWS-MSK-IAM":
        client = {"security.protocol": "SASL_SSL", "sasl.mechanism": MSK_IAM}
    elif sasl.flag(False, "enabled"):
        login = declared.login(name, mechanism, tls=encrypted)
        for key in ("username", "password"):
            if sasl.text(key) is not None:
                variable = login[f"sasl.{key}"]
                assert isinstance(variable, dict)
                sasl.note(
                    key, f"it is not copied: set the environment variable {variable['env']}", loss=False
                )
        client = login
    bootstrap = ",".join(spec.texts("bootstrapAddrs"))
    if "$" in bootstrap:
        spec.note("bootstrapAddrs", f"variables give the addresses: write clusters.{name}.bootstrap")
        bootstrap = ""
    declared.cluster(name, fields, bootstrap, client | paths)
    for part in (tls, sasl, meta, spec):
        part.explain(_ROWS)


def _identity(meta: Fields, name: str) -> tuple[str, ...]:
    """Returns what topicctl tells clusters apart by."""
    return (meta.text(name) or "kafka", meta.text("environment") or "", meta.text("region") or "")


def _cluster_of(meta: Fields, declared: DeclaredResources) -> str:
    """Returns the cluster of a topic. Failure: it leaves open which one of several."""
    identity = _identity(meta, "cluster")
    alike = [
        existing
        for existing in declared.names
        if all(part in ("", existing_part) for part, existing_part in zip(identity, existing, strict=True))
    ]
    if len(alike) > 1 and identity not in alike:
        what = f"{len(alike)} clusters are called {identity[0]}"
        hint = "write environment and region of the cluster below meta"
        raise meta.failure(what, hint)
    if identity not in alike and alike:
        (identity,) = alike
    name = declared.name(identity, meta, identity[0], "-".join(filter(None, identity)))
    return declared.cluster(name, meta)


def _resource(fields: Fields, declared: DeclaredResources) -> None:
    meta, spec = fields.below("meta"), fields.below("spec")
    acls = spec.each("acls")
    if not acls and "partitions" not in spec.values:
        fields.note("spec", "it is no cluster, topic or list of ACLs of topicctl: it is left out")
        return
    cluster = _cluster_of(meta, declared)
    name = meta.text("name")
    for acl in acls:
        resource = acl.below("resource")
        declared.nested_acl(
            acl,
            resource,
            cluster,
            name_key="name",
            principal=resource.text("principal"),
            host=resource.text("host"),
            permission=resource.text("permission"),
        )
    if not acls:
        config = spec.settings("settings")
        if minutes := spec.number("retentionMinutes"):
            config.setdefault("retention.ms", str(minutes * 60_000))
        declared.topic(
            meta, name, cluster, spec.number("partitions"), spec.number("replicationFactor"), config
        )
    for part in (meta, spec):
        part.explain(_ROWS)
