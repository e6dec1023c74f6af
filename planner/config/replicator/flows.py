"""One Replicator connector → one flow, with Replicator's own defaults where they differ from ours."""

import re

from planner.config.connect.notes import PropertyKeys
from planner.config.connect.reasons import REPLICATION, java_regex_problem
from planner.config.replicator.connectors import Connector
from planner.model.topology import (
    Configs,
    ConfigSync,
    Flow,
    Groups,
    OriginCommits,
    Provenance,
    Selection,
    StartAt,
)
from runtime.contract.spec.rename import SAME_NAME, Rename, Table, Template

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
            "dest.topic.replication.factor",
            "0",
            REPLICATION,
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
