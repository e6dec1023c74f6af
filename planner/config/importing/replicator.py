"""Converts Confluent Replicator's connectors to the same flows, and notes every key without a counterpart.

A file has connectors as JSON, in each form that Kafka Connect takes or answers: the REST body
`{"name": …, "config": {…}}`, a bare config, a list of them, and the answer of `GET /connectors?expand=info`.
Each key keeps its line in the file. Each connector becomes a flow, with Replicator's own defaults where they
differ from ours.
"""

import re
from collections.abc import Iterator, Sequence

from planner.config.importing.connect import (
    CONNECT_ROWS,
    Properties,
    client_of,
    java_regex_problem,
)
from planner.config.importing.document import (
    ConvertedTopology,
    Fields,
    NoCounterpart,
    in_order,
    json_tree,
    literal,
    unused,
)
from planner.config.yaml_tree import ListNode, MapNode, Node, ScalarNode
from planner.model.diagnostic import Failure, error
from planner.model.topology import Cluster, Flow, Job, Provenance, Selection, Topology
from runtime.contract.spec.flow import ConfigsSpec, Earliest, GroupsSpec, Latest, OriginCommitsSpec
from runtime.contract.spec.rename import Rename, Table, Template
from runtime.contract.spec.topic_settings import InternalSpec, TimestampsSpec

_BYTES = "records are copied byte for byte and never converted"
# Client settings are without `src.kafka.` and `dest.kafka.`.
_ROWS = (
    NoCounterpart(
        "topic.auto.create",
        "mirror topics are made by repl apply, and by the job under follow: follow: off stops the latter",
        loss=True,
        without_effect="true",
    ),
    NoCounterpart(
        "topic.preserve.partitions",
        "a mirror topic always has its source's partitions",
        loss=True,
        without_effect="true",
    ),
    NoCounterpart(
        "topic.timestamp.type",
        "records keep their timestamps; declare the topic with message.timestamp.type for another type",
        loss=True,
        without_effect="CreateTime",
    ),
    NoCounterpart(
        "offset.start",
        "a flow never resumes from a consumer group: begin it at start: {offsets: …}",
        loss=True,
        without_effect="connect",
    ),
    NoCounterpart(
        r"(src\.)?(key|value|header)\.converter",
        "{class} has no counterpart: records are copied byte for byte",
        loss=True,
        without_effect=".*ByteArrayConverter",
    ),
    NoCounterpart(
        r"offset\.timestamps\.commit|offset\.storage.*|offsets\.storage.*|offset\.flush.*",
        "the ledger at the destination is the flow's position, and it is exact",
    ),
    NoCounterpart(
        r"offset\.translator\..*", "the driver translates every group of the flow, at groups.every"
    ),
    NoCounterpart(
        r"(src\.kafka\.)?timestamps\..*",
        "internal.timestamps says how the topic of consumer timestamps is made",
    ),
    NoCounterpart(
        r"topic\.create\.backoff\.ms", "a topic that could not be made is tried again at follow.every"
    ),
    NoCounterpart(
        r"schema\.(registry|subject)\..*",
        "schemas are not translated: copy the topic _schemas by a flow of its own",
        loss=True,
    ),
    NoCounterpart(r"(src\.)?(key|value|header)\.converter\..*", _BYTES, loss=True),
    NoCounterpart(r"transforms(\..*)?|predicates(\..*)?", f"{_BYTES}: there are no transforms", loss=True),
    NoCounterpart(
        r"topic\.creation\..*",
        "mirror topics have their source's settings; declare a topic to choose",
        loss=True,
    ),
    NoCounterpart(r"confluent\.(topic|license)(\..*)?", "there is no license"),
    NoCounterpart(r"(src|dest)\.zookeeper\..*", "brokers are asked, ZooKeeper never is"),
    NoCounterpart(
        r"(.*\.)?interceptor\.classes|(.*\.)?confluent\.monitoring\..*",
        "no interceptor is needed: jobs.<name>.metrics and repl status show rate, lag and latency",
    ),
    NoCounterpart(
        r"errors\..*", "no record is left out: a partition that can't go on stops, and status says why"
    ),
    *CONNECT_ROWS,
    NoCounterpart(
        r"retries|(connections|metadata|default|retry|socket|security)\..*|client\.dns\.lookup",
        "the product's own Kafka clients choose it",
    ),
)
# Replicator copies internal topics of others, but never this one.
_CONSUMER_TIMESTAMPS = "__consumer_timestamps"
_REPLICATOR = "ReplicatorSourceConnector"
_HINT = "give the JSON that the connector was created with, or what Connect's GET /connectors/NAME answers"


def flow_of(connector: str, keys: Properties, name: str, source: str, destination: str) -> Flow:
    """Returns the flow of a connector of this name that copies between two clusters."""
    topics = _topics(keys)
    # Replicator commits under its consumer's group, which is the connector's name if none is given.
    group = keys.text("src.consumer.group.id") or connector
    return Flow(
        name=name,
        source_cluster=source,
        destination_cluster=destination,
        topics=topics,
        rename=_rename(keys, topics),
        provenance=_provenance(keys),
        start=Latest() if keys.text("src.consumer.auto.offset.reset") == "latest" else Earliest(),
        configs=ConfigsSpec("set" if keys.flag(True, "topic.config.sync") else "off"),
        replication=keys.copies("dest.topic.replication.factor"),
        groups=_groups(keys),
        follow_every_ms=_follow(keys),
        origin_commits=OriginCommitsSpec(group) if keys.flag(True, "offset.topic.commit") else None,
    )


def _topics(keys: Properties) -> Selection:
    """Names of the lists are literal; only topic.regex is a regex. There are no default excludes."""
    named = keys.listed("topic.whitelist") or ()
    pattern = keys.text("topic.regex") or None
    if pattern is not None and (problem := java_regex_problem(pattern)) is not None:
        keys.note("topic.regex", problem)
    include = (*map(literal, named), *((pattern,) if pattern is not None else ()))
    exclude = tuple(map(literal, keys.listed("topic.blacklist") or ()))
    if pattern is None:
        return Selection(include, exclude)
    return Selection(include, (*exclude, _CONSUMER_TIMESTAMPS), default_exclude=False)


def _rename(keys: Properties, topics: Selection) -> Rename:
    key = "topic.rename.format"
    text = keys.text(key) or "${topic}"
    if "${topic}" in text:
        return Template(text.replace("${topic}", "{topic}"))
    named = keys.listed("topic.whitelist") or ()
    if len(named) == 1 and len(topics.include) == 1:
        return Table({named[0]: text})
    keys.note(
        key,
        f"without ${{topic}}, all topics would be copied into {text}, which has no inverse:"
        " choose a rename, repl validate refuses this one",
    )
    return Template(text)


def _provenance(keys: Properties) -> Provenance:
    enabled = keys.flag(False, "provenance.header.enable")
    if keys.text("provenance.header.filter.overrides"):
        keys.note(
            "provenance.header.filter.overrides",
            "records that came from the destination never return to it; after a failover, reverse_of and"
            " repl failback copy back what is missing there",
            loss=enabled,
        )
    return "headers" if enabled else "auto"


def _groups(keys: Properties) -> GroupsSpec:
    """Zero translator tasks switch the translation off. Any other number is no setting here."""
    tasks = keys.text("offset.translator.tasks.max")
    if tasks is not None and tasks not in ("0", "-1"):
        keys.note(
            "offset.translator.tasks.max", "the driver translates, without tasks of its own", loss=False
        )
    every = keys.whole("offset.translator.batch.period.ms", unit="milliseconds")
    return GroupsSpec(sync=tasks != "0", every_ms=every or GroupsSpec().every_ms)


def _follow(keys: Properties) -> int | None:
    """One interval for topics and settings: that of the topics, if the file has both."""
    settings = keys.whole("topic.config.sync.interval.ms", unit="milliseconds")
    topics = keys.whole("topic.poll.interval.ms", unit="milliseconds")
    if topics is not None and settings not in (None, topics):
        reason = f"follow.every is the one interval for topics and settings: {topics} ms is taken"
        keys.note("topic.config.sync.interval.ms", reason, loss=False)
    return topics or settings or 5_000


# Where a client key of each end may stand; the first one found is taken.
_PREFIXES = {
    "source": ("src.kafka.", "src.consumer."),
    "destination": ("dest.kafka.", "producer.override."),
}
_BOOTSTRAP = {"source": "src.kafka.bootstrap.servers", "destination": "dest.kafka.bootstrap.servers"}
_ADDRESS = re.compile(r"[\d.]+|\[.*\]|localhost")


def _cluster(connector: str, keys: Properties, end: str, clusters: dict[str, Cluster]) -> str:
    """Adds the cluster at this end, and returns its name. Two ends are one cluster if they share an address.

    Client settings of its first connector are taken.
    """
    addresses = _addresses(connector, keys, end)
    existing = clusters.values()
    same = next((cluster for cluster in existing if set(addresses) & set(cluster.bootstrap.split(","))), None)
    name = same.name if same is not None else unused([_host_label(addresses[0], end)], clusters.__contains__)
    client = client_of(name, keys.below_any(*_PREFIXES[end], shows_others=True))
    if same is None:
        clusters[name] = Cluster(name, bootstrap=",".join(addresses), client=client)
    elif client != same.client:
        reason = f"its client settings differ from those of cluster {name} above: a cluster has one client"
        keys.note(_BOOTSTRAP[end], reason)
    return name


def _host_label(address: str, end: str) -> str:
    """Returns a cluster's name after its first host; `source` or `destination` for an IP address."""
    host = re.sub(r"^\w+://", "", address.rpartition(":")[0] or address)
    label = re.sub(r"[^A-Za-z0-9_-]", "_", host.split(".")[0]).lstrip("_-")
    return end if _ADDRESS.fullmatch(host) or not label else label[:80]


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts files, each with its name and text. Failure: no Replicator, or an end without an address."""
    connectors = [connector for file, text in files for connector in _connectors(text, file)]
    clusters: dict[str, Cluster] = {}
    flows: dict[str, Flow] = {}
    slots: dict[str, int] = {}
    timestamps = _timestamps([keys for _, keys in connectors])
    for connector, keys in connectors:
        source, destination = (_cluster(connector, keys, end, clusters) for end in _BOOTSTRAP)
        usual = re.sub(r"[^A-Za-z0-9._-]", "-", connector).lstrip("._-")[:90]
        flow_name = unused([usual or f"{source}-to-{destination}"], flows.__contains__)
        flow = flows[flow_name] = flow_of(connector, keys, flow_name, source, destination)
        if not flow.topics.include:
            hint = "set topic.whitelist or topic.regex, or leave the connector out"
            raise keys.failure(f"the connector {connector or keys.file} copies no topic", hint)
        if (tasks := keys.whole("tasks.max")) is not None:
            slots[destination] = max(slots.get(destination, 1), tasks)
        for left in keys.rest():
            end = next((end for end in ("src.kafka.", "dest.kafka.") if left.startswith(end)), "")
            own_topic = left.startswith("src.kafka.timestamps.")
            keys.explain_key(left, left if own_topic else left.removeprefix(end), _ROWS)
    destinations = dict.fromkeys(flow.destination_cluster for flow in flows.values())
    jobs = {job: Job(job, slots=slots.get(job, "auto")) for job in destinations}
    topology = Topology(
        name=name,
        clusters=clusters,
        flows=flows,
        jobs=jobs,
        internal=InternalSpec(timestamps=timestamps),
    )
    # In the order of the files, and of the lines of each.
    notes = (note for _, keys in connectors for note in in_order(keys.notes))
    return ConvertedTopology(topology, tuple(dict.fromkeys(notes)))


def _timestamps(connectors: Sequence[Properties]) -> TimestampsSpec:
    """Returns how the topic of consumer timestamps is made: of several connectors the largest numbers."""
    topic = "src.kafka.timestamps.topic"
    copies = [keys.whole(f"{topic}.replication.factor") for keys in connectors]
    partitions = [keys.whole(f"{topic}.num.partitions") for keys in connectors]
    retries = [keys.whole("fetch.offset.retry.backoff.ms", unit="milliseconds") for keys in connectors]
    expiries = [keys.whole("fetch.offset.expiry.ms", unit="milliseconds") for keys in connectors]
    return TimestampsSpec(
        replication=max(filter(None, copies), default=None),
        partitions=max(filter(None, partitions), default=TimestampsSpec().partitions),
        retry_ms=max(filter(None, retries), default=None),
        expiry_ms=max(filter(None, expiries), default=None),
    )


def _addresses(connector: str, keys: Properties, end: str) -> tuple[str, ...]:
    key = _BOOTSTRAP[end]
    addresses = keys.listed(key) or ()
    if addresses and not any("${" in address for address in addresses):
        return addresses
    what = "lets a config provider say where its" if addresses else "does not say where its"
    hint = f"write the addresses out as {key}"
    raise keys.failure(f"the connector {connector or keys.file} {what} {end} is", hint)


def _connectors(text: str, file: str) -> list[tuple[str, Properties]]:
    """Returns the Replicator connectors of a file, each with its name, which is "" where the file has none.

    Failure: no JSON, or a connector of another class.
    """
    connectors = list(_configurations(json_tree(text, file, _HINT), file))
    if not connectors:
        raise Failure(error(f"{file} holds no connector configuration", _HINT))
    return connectors


def _configurations(node: Node, file: str) -> Iterator[tuple[str, Properties]]:
    """Yields the name and the keys of each configuration in the file."""
    match node:
        case ListNode():
            for item in node.items:
                yield from _configurations(item, file)
        case MapNode(pairs=pairs) if pairs:
            fields = Fields.of(node, file, [])
            name = fields.text("name") or ""
            config = fields.node("config")
            members = fields.values.values()
            if isinstance(config, MapNode):
                yield _connector(name, config, file)
            elif all(isinstance(member, MapNode) for member in members):
                # The answer of expand=info, and of expand=info&expand=status.
                for member in members:
                    if (info := Fields.of(member, file, []).node("info")) is not None:
                        yield from _configurations(info, file)
            else:
                yield _connector(name, node, file)


def _connector(name: str, config: MapNode, file: str) -> tuple[str, Properties]:
    """Returns the name and the keys of a configuration. Connect takes everything as a text."""
    keys = Properties({}, file, config.pairs[0][0].source.line if config.pairs else 1, [])
    for key, value in config.pairs:
        if not isinstance(value, ScalarNode):
            what = "a connector's config has a value that is no text, number or boolean"
            raise Failure(error(what, "write it as a text", source=key.source))
        if value.is_null:
            reason = "it is null: Replicator's default is taken, and so it is here"
            keys.note_at(key.source.line, key.text, reason, loss=False)
        else:
            keys.add(key.text, value.text, key.source.line)
    kind, own_name = keys.text("connector.class"), keys.text("name")
    if (kind or "").rpartition(".")[2] not in (_REPLICATOR, "Replicator", "ReplicatorSource"):
        what = "names no connector.class" if kind is None else f"is a {kind.rpartition('.')[2]}"
        raise keys.failure(
            f"a configuration in {file} {what}, and no {_REPLICATOR}",
            "leave it out: only Confluent Replicator's configurations become flows",
        )
    return name or own_name or "", keys
