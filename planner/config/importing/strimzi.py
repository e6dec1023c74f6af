"""Converts Strimzi's KafkaMirrorMaker2 resource: its mirrors are MirrorMaker 2's flows.

What the operator makes of the resource, a configuration of MirrorMaker 2, is made here too and read by `mm2`.
A Secret of Kubernetes is never read: a variable stands in its place.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.config.importing import mm2
from planner.config.importing.connect import Properties
from planner.config.importing.document import ConvertedTopology, Fields, NoCounterpart, in_order, trees
from planner.config.yaml_tree import ScalarNode
from planner.model.diagnostic import Failure, error

WHAT = "the YAML of a KafkaMirrorMaker2 resource"
_POD = "there are no workers in pods: a job runs on Spark, jobs: says how"
_ROWS = (
    NoCounterpart("version|replicas|image|resources|jvmOptions|template|livenessProbe|readinessProbe", _POD),
    NoCounterpart(
        "logging|tracing|externalConfiguration|clientRackInitImage|rack|connectCluster|groupId", _POD
    ),
    NoCounterpart(
        "(config|offset|status)StorageTopic", "the ledger at the destination is the flow's position"
    ),
    NoCounterpart("metricsConfig", "jobs.<name>.metrics is the Prometheus endpoint"),
    NoCounterpart(
        "pause|state", "the flow is written as active: set state: paused to begin without copying", loss=True
    ),
    NoCounterpart("autoRestart", "a partition that fails is tried again without an end"),
)
_MECHANISMS = {
    "scram-sha-512": ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "scram-sha-256": ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "plain": ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
}


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts one resource. Failure: there is none, or it has no mirror."""
    resources = [
        fields
        for file, text in files
        for node in trees(text, file, WHAT)
        for fields in [Fields.of(node, file, [])]
        if fields.text("kind") == "KafkaMirrorMaker2"
    ]
    if len(resources) != 1:
        many = "several KafkaMirrorMaker2 resources" if resources else "no KafkaMirrorMaker2 resource"
        raise Failure(error(f"{files[0][0]} holds {many}", f"name {WHAT}, one at a time"))
    (resource,) = resources
    spec = resource.below("spec")
    keys = Properties({}, resource.file, 1, [])
    for key, value, line in _properties(spec):
        keys.add(key, value, line)
    converted = mm2.convert_properties(keys, name)
    spec.explain(_ROWS)
    # The connectors of a Connect cluster keep their positions in its topic, not where a dedicated one does.
    return replace(converted, notes=in_order([*converted.notes, *resource.notes]), positions={})


_Property = tuple[str, str, int]  # a key of MirrorMaker 2, its value and its line in the resource


def _properties(spec: Fields) -> Iterator[_Property]:
    """Yields the configuration that the operator makes of a resource, in either version of its API."""
    clusters: dict[str, Fields] = {}
    target = spec.below("target")
    for cluster in [*spec.each("clusters"), *([target] if target else [])]:
        _add(cluster, clusters)
    flows: dict[str, Fields] = {}
    for mirror in spec.each("mirrors"):
        source = mirror.below("source")
        if source:
            _add(source, clusters)
        source_alias = source.text("alias") or mirror.text("sourceCluster") or ""
        target_alias = target.text("alias") or mirror.text("targetCluster") or ""
        pair = f"{source_alias}->{target_alias}"
        if "sourceConnector" not in mirror.values:
            reason = f"without it the operator copies no record from {source_alias[:100]}: there is no flow"
            mirror.note("sourceConnector", reason)
        elif pair in flows:
            what = f"two mirrors copy {pair[:200]}"
            raise mirror.failure(what, "make them one, with both of their topics")
        else:
            flows[pair] = mirror
    if not flows:
        hint = "the operator copies records only for a mirror with a sourceConnector"
        raise Failure(error(f"no mirror of {spec.file} has a sourceConnector", hint))
    yield "clusters", ",".join(clusters), spec.line
    for alias, cluster in clusters.items():
        yield from _cluster(alias, cluster)
    for pair, mirror in flows.items():
        yield from _mirror(mirror, f"{pair}.")


def _add(cluster: Fields, clusters: dict[str, Fields]) -> None:
    """Adds a cluster by its alias. Failure: another one has it."""
    alias = cluster.text("alias")
    if alias is None or not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", alias):
        cluster.note("alias", "it is no name of a cluster: the cluster is left out")
        return
    other = clusters.setdefault(alias, cluster)
    made_of = [list(_cluster("", Fields(entry.values, entry.file, 0, []))) for entry in (cluster, other)]
    if made_of[0] != made_of[1]:
        raise cluster.failure(f"two clusters have the alias {alias}", "give each cluster an alias of its own")


def _cluster(alias: str, cluster: Fields) -> Iterator[_Property]:
    def written(key: str, value: str) -> _Property:
        return f"{alias}.{key}", value, cluster.line

    yield written("bootstrap.servers", cluster.text("bootstrapServers") or "")
    encrypted = "tls" in cluster.values
    tls = cluster.below("tls")
    for certificate in tls.each("trustedCertificates"):
        secret = certificate.text("secretName") or ""
        tls.note(
            "trustedCertificates", f"write ssl.ca.location: a file with the certificates of Secret {secret}"
        )
        break
    login = cluster.below("authentication")
    kind = login.text("type")
    if kind in _MECHANISMS:
        mechanism, module = _MECHANISMS[kind]
        secret = login.below("passwordSecret").text("secretName") or "secret"
        user = (login.text("username") or "").replace("\\", "\\\\").replace('"', '\\"')
        yield written("security.protocol", "SASL_SSL" if encrypted else "SASL_PLAINTEXT")
        yield written("sasl.mechanism", mechanism)
        login_text = f'{module} required username="{user}" password="${{secrets:{secret}:password}}";'
        yield written("sasl.jaas.config", login_text)
    elif kind == "oauth" or (kind == "custom" and login.flag(False, "sasl")):
        yield written("security.protocol", "SASL_SSL" if encrypted else "SASL_PLAINTEXT")
        if kind == "oauth":
            yield written("sasl.mechanism", "OAUTHBEARER")
        if endpoint := login.text("tokenEndpointUri"):
            yield written("sasl.oauthbearer.token.endpoint.url", endpoint)
    elif encrypted or kind == "tls":
        yield written("security.protocol", "SSL")
    if kind == "custom":
        for key, value in login.settings("config").items():
            yield written(key, value)
    if kind is not None and kind not in _MECHANISMS:
        cluster.note(
            "authentication",
            f"write how to log in by {kind} below client: of the cluster: docs/logins.md says how",
        )
    for key, value in cluster.settings("config").items():
        yield written(key, value)
    cluster.explain(_ROWS)


def _mirror(mirror: Fields, prefix: str) -> Iterator[_Property]:
    def written(key: str, value: str, line: int) -> _Property:
        return f"{prefix}{key}", value, line

    yield written("enabled", "true", mirror.line)
    # The operator puts the resource's own patterns in the place of those of a connector's configuration.
    patterns: dict[str, _Property] = {}
    for ours, names in {
        "topics": ("topicsPattern",),
        "topics.exclude": ("topicsExcludePattern", "topicsBlacklistPattern"),
        "groups": ("groupsPattern",),
        "groups.exclude": ("groupsExcludePattern", "groupsBlacklistPattern"),
    }.items():
        node = mirror.node(*names)
        if isinstance(node, ScalarNode):
            patterns[ours] = written(ours, node.text, node.source.line)
    # The operator runs only the connectors that stand in the resource.
    for part, duty in (("heartbeatConnector", "heartbeats"), ("checkpointConnector", "checkpoints")):
        if part not in mirror.values:
            yield written(f"emit.{duty}.enabled", "false", mirror.line)
    # A key that several connectors have is the source connector's, which copies the records.
    for part in ("heartbeatConnector", "checkpointConnector", "sourceConnector"):
        connector = mirror.below(part)
        if (tasks := connector.text("tasksMax")) and part == "sourceConnector":
            yield written("tasks.max", tasks, connector.line)
        config = connector.below("config")
        for key, node in config.values.items():
            if key.replace("blacklist", "exclude") in patterns:
                config.note(key, "the pattern of the mirror takes its place", loss=False)
            elif isinstance(node, ScalarNode) and not node.is_null:
                yield written(key, node.text, node.source.line)
        connector.explain(_ROWS)
    yield from patterns.values()
    mirror.explain(_ROWS)
