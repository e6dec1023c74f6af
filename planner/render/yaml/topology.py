"""Topology → YAML text that people like to read, and that loads as the same topology."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from planner.model.diagnostic import Diagnostic, warning
from planner.model.topology import (
    API_VERSION,
    Cluster,
    Internal,
    Job,
    Policies,
    SecretRef,
    Setting,
    Timestamps,
    Topic,
    Topology,
    looks_secret,
)
from planner.render.yaml.acls import acl_values
from planner.render.yaml.flows import duration, flow_value
from planner.render.yaml.text import WIDTH, UnquotedText, Value, item, pair, printable, setting
from planner.render.yaml.topics import defaults_value, topic_defaults, topic_values

_USUAL_RETENTION_MS = 30 * 86_400_000


def topology_yaml(topology: Topology, header: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """`header` opens the file and `notes` close it, both as comments. Literal secrets never come out:
    a value that must not be shown becomes a reference to an environment variable.
    """
    sections = [
        [*_comments(header), f"apiVersion: {API_VERSION}", *pair("name", topology.name)],
        ["clusters:", *_named({name: cluster_value(one) for name, one in topology.clusters.items()})],
        *_topics(topology.topics),
        _listed("acls", acl_values(acl.rule for acl in topology.acls)),
        _listed("flows", [flow_value(flow) for flow in topology.flows.values()]),
        _jobs(topology),
        _internal(topology.internal),
        _policies(topology.policies),
        list(_comments(notes)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def cluster_value(cluster: Cluster) -> dict[str, Value]:
    found: dict[str, Value] = {"bootstrap": cluster.bootstrap}
    if cluster.id is not None:
        found["id"] = cluster.id
    if cluster.client:
        found["client"] = {
            key: _client_value(cluster.name, key, value) for key, value in cluster.client.items()
        }
    return found


def secret_variable(cluster: str, key: str) -> str:
    """The environment variable that takes the place of a secret: DC1_SASL_PASSWORD."""
    text = "".join(sign if sign.isalnum() else "_" for sign in f"{cluster}_{key}".upper())
    return text if not text[0].isdigit() else f"_{text}"


def secret_notes(cluster: Cluster) -> list[Diagnostic]:
    """Returns a warning for each literal secret, with the variable that takes its place in the text."""
    return [
        warning(
            f"{key} of {cluster.name} is a secret and not written out",
            f"set the environment variable {secret_variable(cluster.name, key)}",
        )
        for key, value in cluster.client.items()
        if isinstance(value, str) and looks_secret(key)
    ]


def _client_value(cluster: str, key: str, value: Setting) -> Value:
    match value:
        case SecretRef(kind=kind, name=name):
            return {kind: name}
        case str() if looks_secret(key):
            return {"env": secret_variable(cluster, key)}
        case str():
            return setting(value)


def _topics(topics: Sequence[Topic]) -> Iterator[list[str]]:
    defaults = topic_defaults(topics)
    if found := defaults_value(defaults):
        yield ["defaults:", *pair("topic", found, 2)]
    yield _listed("topics", topic_values(topics, defaults))


def _listed(key: str, values: Sequence[Value]) -> list[str]:
    if not values:
        return []
    lines = [f"{key}:"]
    for value in values:
        lines += item(value, 2)
    return lines


def _named(values: Mapping[str, Value]) -> Iterator[str]:
    for key, value in values.items():
        yield from pair(key, value, 2)


def _jobs(topology: Topology) -> list[str]:
    """Those that say something; every other one is there by itself."""
    said = {name: found for name, job in topology.jobs.items() if (found := _job(job))}
    return ["jobs:", *_named(said)] if said else []


def _metrics(job: Job, usual: Job) -> dict[str, Value]:
    found: dict[str, Value] = {}
    moved = (job.metrics_port, job.metrics_host) != (usual.metrics_port, usual.metrics_host)
    if moved and job.metrics_port is not None:
        found = {"port": job.metrics_port, "host": job.metrics_host}
        if not job.metrics_port:
            del found["port"]
    if job.metrics_partitions != usual.metrics_partitions:
        found["partitions"] = job.metrics_partitions
    return found


def _job(job: Job) -> dict[str, Value]:
    usual = Job(job.name)
    found: dict[str, Value] = {}
    if job.launcher != usual.launcher:
        found["launcher"] = job.launcher
    if job.master != ("yarn" if job.launcher == "yarn" else usual.master):
        found["master"] = job.master
    if job.slots != usual.slots:
        found["slots"] = job.slots
    if job.memory != usual.memory:
        found["memory"] = setting(job.memory)
    if job.metrics_port is None:
        found["metrics"] = UnquotedText("off")
    elif metrics := _metrics(job, usual):
        found["metrics"] = metrics
    for key, settings in (("conf", job.conf), ("options", job.options)):
        if settings:
            found[key] = {name: setting(value) for name, value in sorted(settings.items())}
    return found


def _internal(internal: Internal) -> list[str]:
    found: dict[str, Value] = {}
    if internal.replication is not None:
        found["replication"] = internal.replication
    if internal.retention_ms is not None and internal.retention_ms != _USUAL_RETENTION_MS:
        found["retention"] = duration(internal.retention_ms)
    if timestamps := _timestamps(internal.timestamps):
        found["timestamps"] = timestamps
    return list(pair("internal", found)) if found else []


def _timestamps(timestamps: Timestamps) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if timestamps.retention_ms is not None:
        found["retention"] = duration(timestamps.retention_ms)
    for key in ("replication", "partitions", "max_per_partition"):
        if (value := getattr(timestamps, key)) != getattr(Timestamps(), key):
            found[key] = value
    return found


def _policies(policies: Policies) -> list[str]:
    found: dict[str, Value] = {}
    if policies.max_deletes != Policies().max_deletes:
        found["max_deletes"] = policies.max_deletes
    if policies.require:
        found["require"] = {one.subject: f"{one.operator}{one.value}" for one in policies.require}
    return list(pair("policies", found)) if found else []


def _comments(lines: Iterable[str]) -> Iterator[str]:
    """Each text as a comment; a longer one goes on below, further in."""
    for line in lines:
        parts = wrap(
            printable(line), WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for part in parts or [""]:
            yield f"# {part}".rstrip()
