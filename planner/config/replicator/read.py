"""The connectors of some files → one topology and notes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.config.connect.clients import CLIENT_KEYS, client_of
from planner.config.connect.notes import ConversionNote, ConvertedTopology, PropertyKeys
from planner.config.replicator.connectors import Connector, connectors_of
from planner.config.replicator.flows import flow_of
from planner.config.replicator.reasons import reason_for
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import Cluster, Flow, Internal, Job, Timestamps, Topology

# Where a client key of each end may stand; the first one found is taken.
_PREFIXES = {
    "source": ("src.kafka.", "src.consumer."),
    "destination": ("dest.kafka.", "producer.override."),
}
_BOOTSTRAP = {"source": "src.kafka.bootstrap.servers", "destination": "dest.kafka.bootstrap.servers"}
_ADDRESS = re.compile(r"[\d.]+|\[.*\]|localhost")


@dataclass(slots=True)
class _Clusters:
    """The clusters of all connectors. Two ends are one cluster if they share an address."""

    by_name: dict[str, Cluster] = field(default_factory=dict)

    def of(self, connector: Connector, end: str) -> str:
        """Returns the name of the cluster at this end. Client settings of its first connector are taken."""
        addresses = _addresses(connector, end)
        keys = connector.keys
        found = next((one for one in self.by_name.values() if addresses & _split(one.bootstrap)), None)
        name = found.name if found is not None else self._new_name(addresses, end, keys)
        client = client_of(name, keys, _client_keys(keys, end))
        if found is None:
            bootstrap = ",".join(part.strip() for part in (keys.text(_BOOTSTRAP[end]) or "").split(","))
            self.by_name[name] = Cluster(name, bootstrap, client=client)
        elif client != found.client:
            keys.note(
                _BOOTSTRAP[end],
                f"its client settings differ from those of cluster {name} above: a cluster has one client",
            )
        return name

    def _new_name(self, addresses: frozenset[str], end: str, keys: PropertyKeys) -> str:
        first = (keys.text(_BOOTSTRAP[end]) or "").split(",")[0].strip() or min(addresses)
        host = re.sub(r"^\w+://", "", first.rpartition(":")[0] or first)
        label = re.sub(r"[^A-Za-z0-9_-]", "_", host.split(".")[0]).lstrip("_-")
        usual = end if _ADDRESS.fullmatch(host) or not label else label[:80]
        return _unique(usual, self.by_name)


def convert(files: Iterable[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts files, each with its name and text. Failure: no Replicator, or an end without an address."""
    connectors = [one for file, text in files for one in connectors_of(text, file)]
    clusters = _Clusters()
    flows: dict[str, Flow] = {}
    slots: dict[str, int] = {}
    timestamps = _timestamps(connectors)
    for one in connectors:
        source, destination = clusters.of(one, "source"), clusters.of(one, "destination")
        usual = re.sub(r"[^A-Za-z0-9._-]", "-", one.name).lstrip("._-")[:90] or f"{source}-to-{destination}"
        flow = flow_of(one, _unique(usual, flows), source, destination)
        if not flow.topics.include:
            _require_topics(one)
        flows[flow.name] = flow
        tasks = one.keys.number("tasks.max")
        if tasks is not None:
            slots[destination] = max(slots.get(destination, 1), tasks)
        for left in one.keys.rest():
            reason, loss = reason_for(left.key)
            one.keys.note(left.key, reason, loss=loss)
    destinations = dict.fromkeys(flow.destination_cluster for flow in flows.values())
    jobs = {job: Job(job, slots=slots.get(job, "auto")) for job in destinations}
    topology = Topology(
        name=name,
        clusters=clusters.by_name,
        flows=flows,
        jobs=jobs,
        internal=Internal(timestamps=timestamps),
    )
    return ConvertedTopology(topology, _notes(connectors))


def _timestamps(connectors: Iterable[Connector]) -> Timestamps:
    """Returns how the topic of consumer timestamps is made: of several connectors the largest numbers."""
    topic = "src.kafka.timestamps.topic"
    copies = [one.keys.number(f"{topic}.replication.factor") for one in connectors]
    partitions = [one.keys.number(f"{topic}.num.partitions") for one in connectors]
    retries = [one.keys.milliseconds("fetch.offset.retry.backoff.ms") for one in connectors]
    expiries = [one.keys.milliseconds("fetch.offset.expiry.ms") for one in connectors]
    return Timestamps(
        replication=max(filter(None, copies), default=None),
        partitions=max(filter(None, partitions), default=Timestamps().partitions),
        retry_ms=max(filter(None, retries), default=Timestamps().retry_ms),
        expiry_ms=max(filter(None, expiries), default=None),
    )


def _notes(connectors: Iterable[Connector]) -> tuple[ConversionNote, ...]:
    """Returns the notes in the order of the files, and of the lines of each."""
    return tuple(
        note for one in connectors for note in sorted(one.keys.notes, key=lambda note: (note.line, note.key))
    )


def _require_topics(connector: Connector) -> None:
    raise Failure(
        error(
            f"the connector {connector.name or connector.keys.file} copies no topic",
            "set topic.whitelist or topic.regex, or leave the connector out",
            source=SourceLocation(connector.keys.file, connector.line, 1),
        )
    )


def _addresses(connector: Connector, end: str) -> frozenset[str]:
    key = _BOOTSTRAP[end]
    found = _split(connector.keys.text(key) or "")
    if found and not any("${" in one for one in found):
        return found
    what = "does not say where its" if not found else "lets a config provider say where its"
    raise Failure(
        error(
            f"the connector {connector.name or connector.keys.file} {what} {end} is",
            f"write the addresses out as {key}",
            source=SourceLocation(connector.keys.file, connector.line, 1),
        )
    )


def _split(bootstrap: str) -> frozenset[str]:
    return frozenset(part.strip() for part in bootstrap.split(",") if part.strip())


def _client_keys(keys: PropertyKeys, end: str) -> dict[str, str]:
    """Returns each client key → the connector's key that sets it for this end."""
    found: dict[str, str] = {}
    for key in sorted(CLIENT_KEYS):
        candidates = [f"{prefix}{key}" for prefix in _PREFIXES[end]]
        first = keys.name_of(*candidates)
        if first is not None and keys.by_name[first].value.strip():
            found[key] = first
            value = keys.by_name[first].value
            keys.used.update(
                one for one in candidates if one in keys.by_name and keys.by_name[one].value == value
            )
    return found


def _unique(name: str, taken: Mapping[str, object]) -> str:
    """Returns the name, with a number behind it if it is taken."""
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found
