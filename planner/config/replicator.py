"""Converts Confluent Replicator's connectors to the same flows, and notes every key without a counterpart.

`planner.config.connectors` reads the JSON. Each connector becomes a flow, with Replicator's own defaults
where they differ from ours.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.config.connect import (
    CLIENT_KEYS,
    CLIENT_REASONS,
    NO_WORKER,
    ConversionNote,
    ConvertedTopology,
    PropertyKeys,
    Reason,
    client_of,
    first_reason,
    java_regex_problem,
)
from planner.config.connectors import Connector, connectors_of
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import (
    Cluster,
    Configs,
    ConfigSync,
    Flow,
    Groups,
    Internal,
    Job,
    OriginCommits,
    Provenance,
    Selection,
    StartAt,
    Timestamps,
    Topology,
)
from runtime.contract.spec.rename import SAME_NAME, Rename, Table, Template

_LEDGER = "the ledger at the destination is the flow's position, and it is exact"
_TIMESTAMPS = "internal.timestamps says how the topic of consumer timestamps is made"
_SCHEMAS = "schemas are not translated: copy the topic _schemas by a flow of its own"
_MONITORING = "no interceptor is needed: jobs.<name>.metrics and repl status show rate, lag and latency"
_BYTES = "records are copied byte for byte and never converted"

_REASONS: tuple[Reason, ...] = (
    (r"offset\.timestamps\.commit|offset\.storage.*|offsets\.storage.*|offset\.flush.*", _LEDGER, False),
    (
        r"offset\.translator\..*",
        "the driver translates every group of the flow, at groups.every",
        False,
    ),
    (r"(src\.kafka\.)?timestamps\..*", _TIMESTAMPS, False),
    (r"topic\.create\.backoff\.ms", "a topic that could not be made is tried again at follow.every", False),
    (r"schema\.(registry|subject)\..*", _SCHEMAS, True),
    (r"(src\.)?(key|value|header)\.converter(\..*)?", _BYTES, True),
    (r"transforms(\..*)?|predicates(\..*)?", f"{_BYTES}: there are no transforms", True),
    (r"topic\.creation\..*", "mirror topics have their source's settings; declare a topic to choose", True),
    (r"confluent\.(topic|license)(\..*)?", "there is no license", False),
    (r"(src|dest)\.zookeeper\..*", "brokers are asked, ZooKeeper never is", False),
    (r"(.*\.)?interceptor\.classes|(.*\.)?confluent\.monitoring\..*", _MONITORING, False),
    (r"errors\..*", "no record is left out: a partition that can't go on stops, and status says why", False),
    (r"exactly\.once\..*|transaction\.boundary.*", "every flow copies exactly once", False),
    (r"(src\.consumer|consumer\.override)\..*", "what the job reads by is chosen by itself", False),
    (
        r"producer\.(override\.)?.*",
        "whole record batches are copied as they are, so there is nothing to tune here",
        False,
    ),
    (r"admin\.override\..*", "--timeout and --lock-timeout are given with the command", False),
    (r"config\.action\.reload|task\..*|cluster\.id|cluster\.threads|plugin\..*", NO_WORKER, False),
    *CLIENT_REASONS,
    (
        r"(retries|(connections|metadata|default|retry|socket|security)\..*|client\.dns\.lookup)",
        "the product's own Kafka clients choose it",
        False,
    ),
)


def reason_for(key: str) -> tuple[str, bool]:
    """Returns why a key has no counterpart, and whether something that was wanted is not done.

    A client setting may stand below `src.kafka.` or `dest.kafka.`.
    """
    for prefix in ("src.kafka.", "dest.kafka."):
        if key.startswith(prefix) and not key.startswith("src.kafka.timestamps."):
            return first_reason(key.removeprefix(prefix), _REASONS)
    return first_reason(key, _REASONS)


_BYTE_ARRAYS = "ByteArrayConverter"
_CONVERTERS = tuple(f"{role}{part}.converter" for role in ("", "src.") for part in ("key", "value", "header"))
# Replicator copies internal topics of others, but never this one.
_CONSUMER_TIMESTAMPS = "__consumer_timestamps"


def flow_of(connector: Connector, name: str, source: str, destination: str) -> Flow:
    """Returns the flow of a connector that copies between two clusters of these names."""
    keys = connector.keys
    topics = _topics(keys)
    _note_differences(keys)
    return Flow(
        name=name,
        source_cluster=source,
        destination_cluster=destination,
        topics=topics,
        rename=_rename(keys, topics),
        provenance=_provenance(keys),
        start=StartAt("latest" if keys.text("src.consumer.auto.offset.reset") == "latest" else "earliest"),
        configs=Configs(ConfigSync.SET if keys.flag(True, "topic.config.sync") else ConfigSync.OFF),
        replication=keys.copies("dest.topic.replication.factor"),
        groups=_groups(keys),
        follow_every_ms=_follow(keys),
        origin_commits=_origin_commits(connector),
    )


def _topics(keys: PropertyKeys) -> Selection:
    """Names of the lists are literal; only topic.regex is a regex. There are no default excludes."""
    named = keys.listed("topic.whitelist") or ()
    pattern = keys.text("topic.regex") or None
    if pattern is not None and (problem := java_regex_problem(pattern)) is not None:
        keys.note("topic.regex", problem)
    include = (*map(_literal, named), *((pattern,) if pattern is not None else ()))
    exclude = tuple(map(_literal, keys.listed("topic.blacklist") or ()))
    if pattern is None:
        return Selection(include, exclude)
    return Selection(include, (*exclude, _CONSUMER_TIMESTAMPS), default_exclude=False)


def _literal(name: str) -> str:
    """Returns the regex for exactly this name."""
    return re.sub(r"([^\w-])", r"\\\1", name)


def _rename(keys: PropertyKeys, topics: Selection) -> Rename:
    key = "topic.rename.format"
    text = keys.text(key) or "${topic}"
    if "${topic}" in text:
        rename = Template(text.replace("${topic}", "{topic}"))
        return SAME_NAME if rename == SAME_NAME else rename
    named = keys.listed("topic.whitelist") or ()
    if len(named) == 1 and len(topics.include) == 1:
        return Table(((named[0], text),))
    keys.note(
        key,
        f"without ${{topic}}, all topics would be copied into {text}, which has no inverse:"
        " choose a rename, repl validate refuses this one",
    )
    return Template(text)


def _provenance(keys: PropertyKeys) -> Provenance:
    enabled = keys.flag(False, "provenance.header.enable")
    if keys.text("provenance.header.filter.overrides"):
        keys.note(
            "provenance.header.filter.overrides",
            "records that came from the destination never return to it; after a failover, reverse_of and"
            " repl failback copy back what is missing there",
            loss=enabled,
        )
    return Provenance.HEADERS if enabled else Provenance.AUTO


def _groups(keys: PropertyKeys) -> Groups:
    """Zero translator tasks switch the translation off. Any other number is no setting here."""
    tasks = keys.text("offset.translator.tasks.max")
    if tasks is not None and tasks not in ("0", "-1"):
        keys.note(
            "offset.translator.tasks.max", "the driver translates, without tasks of its own", loss=False
        )
    every = keys.milliseconds("offset.translator.batch.period.ms")
    return Groups(sync=tasks != "0", every_ms=every or Groups().every_ms)


def _follow(keys: PropertyKeys) -> int | None:
    """One interval for topics and settings: that of the topics, if the file has both."""
    settings = keys.milliseconds("topic.config.sync.interval.ms")
    topics = keys.milliseconds("topic.poll.interval.ms")
    if topics is not None and settings not in (None, topics):
        reason = f"follow.every is the one interval for topics and settings: {topics} ms is taken"
        keys.note("topic.config.sync.interval.ms", reason, loss=False)
    return topics or settings or 5_000


def _origin_commits(connector: Connector) -> OriginCommits | None:
    """Replicator commits under its consumer's group, which is the connector's name if none is given."""
    group = connector.keys.text("src.consumer.group.id") or connector.name
    if not connector.keys.flag(True, "offset.topic.commit"):
        return None
    return OriginCommits(group)


def _note_differences(keys: PropertyKeys) -> None:
    """Notes the settings whose values ask for something that a flow never does."""
    for key, usual, reason in (
        (
            "topic.auto.create",
            "true",
            "mirror topics are made by repl apply, and by the job under follow: follow: off stops the latter",
        ),
        ("topic.preserve.partitions", "true", "a mirror topic always has its source's partitions"),
        (
            "topic.timestamp.type",
            "CreateTime",
            "records keep their timestamps; declare the topic with message.timestamp.type for another type",
        ),
        (
            "offset.start",
            "connect",
            "a flow never resumes from a consumer group: begin it at start: {offsets: …}",
        ),
    ):
        value = keys.text(key)
        if value is not None and value.lower() != usual.lower():
            keys.note(key, reason)
    for key in _CONVERTERS:
        value = keys.text(key)
        if value is not None and not value.endswith(_BYTE_ARRAYS):
            keys.note(key, f"{value.rpartition('.')[2]} has no counterpart: records are copied byte for byte")


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
        retry_ms=max(filter(None, retries), default=None),
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
