"""Creates the control plane's internal topics, encodes their records, and reads and writes the registry.

Records are versioned, readable JSON. The registry of a cluster says which topology owns which object there,
as last applied.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from planner.kafka import ClusterEndpoint, admin
from planner.kafka.log import FIRST_ANSWER_SECONDS, READ_SECONDS, append, compacted, read, unusable
from planner.model.address import Address
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.observed import RegistryEntry
from planner.model.topology import Internal, OnRemove
from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.naming import REGISTRY
from runtime.contract.spec.topic_settings import at_destination

VERSION = 1
_T = TypeVar("_T")


class UnknownVersion(Failure):
    """A record was written by a newer release. It is never interpreted."""

    def __init__(self, what: str, version: object) -> None:
        super().__init__(
            error(
                f"{what} was written by a newer repl (format {version}, this one knows {VERSION})",
                "upgrade repl",
            )
        )


def encode(body: dict[str, Any]) -> bytes:
    """Returns the record's bytes with its format version."""
    return msgspec.json.encode({"v": VERSION, **body})


class _OwnedBody(msgspec.Struct, frozen=True):
    topology: str
    spec: dict[str, str]
    protect: bool
    on_remove: OnRemove
    origin: str
    created: bool
    plan: str
    at: int


_body = msgspec.json.Decoder(dict[str, Any])


def decode(what: str, data: bytes) -> dict[str, Any]:
    """Returns the body. Raises UnknownVersion for a newer format, UnreadableValue for a damaged record."""
    body = record_values.decode(_body, data)
    version = body.get("v")
    if isinstance(version, int) and version > VERSION:
        raise UnknownVersion(what, version)
    if version != VERSION:
        raise UnreadableValue(f"{what} has the format {version!r}, which no release of repl writes")
    return body


def shaped(body: object, shape: type[_T]) -> _T:
    """Returns the body as `shape`. Raises UnreadableValue for a missing field or a wrong type."""
    try:
        return msgspec.convert(body, shape)
    except (msgspec.ValidationError, RecursionError) as wrong:
        raise UnreadableValue(str(wrong)) from None


def registry_key(address: Address) -> bytes:
    """Returns the key: the address alone, since an object has one owner at most."""
    return str(address).encode()


def encode_owned(entry: RegistryEntry) -> bytes:
    """Returns a registry entry's bytes."""
    return encode(
        {
            "topology": entry.topology,
            "spec": dict(entry.spec),
            "protect": entry.protect,
            "on_remove": entry.on_remove.value,
            "origin": entry.origin,
            "created": entry.created,
            "plan": entry.plan,
            "at": entry.at_ms,
        }
    )


def decode_owned(key: bytes, data: bytes) -> RegistryEntry:
    """Returns a registry entry. Raises UnknownVersion or UnreadableValue."""
    try:
        address = Address.parse(key.decode())
    except ValueError as wrong:
        raise UnreadableValue(str(wrong)) from None
    body = shaped(decode(f"the registry entry of {address}", data), _OwnedBody)
    return RegistryEntry(
        address=address,
        topology=body.topology,
        spec=body.spec,
        protect=body.protect,
        on_remove=body.on_remove,
        origin=body.origin,
        created=body.created,
        plan=body.plan,
        at_ms=body.at,
    )


DAY_MS = 24 * 3_600_000
_REPLICATION = 3

_SMALL = {
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DAY_MS),
}


_OF_A_DESTINATION = {one.name: one for one in at_destination()}
_PARTITIONS = {name: one.partitions for name, one in _OF_A_DESTINATION.items()}


def configs(topic: str, internal: Internal) -> dict[str, str]:
    """Returns the settings that an internal topic needs."""
    match topic:
        case naming.REGISTRY:
            return {"cleanup.policy": "compact", **_SMALL}
        case naming.LEASE:
            return {
                "cleanup.policy": "delete",
                "retention.ms": str(DAY_MS),
                "segment.bytes": str(1 << 20),
                "message.timestamp.type": "LogAppendTime",
            }
        case _ if topic in _OF_A_DESTINATION:
            return dict(_OF_A_DESTINATION[topic].config)
        case _:
            kept = internal.retention_ms if internal.retention_ms is not None else 30 * DAY_MS
            return {"cleanup.policy": "delete", "retention.ms": str(kept)}


def ensure(endpoint: ClusterEndpoint, topics: Iterable[str], internal: Internal) -> None:
    """Creates missing topics, as durable as the cluster allows, and waits until they can be written."""
    client = admin(endpoint)
    try:
        metadata = client.list_topics(timeout=FIRST_ANSWER_SECONDS)
        missing = [topic for topic in topics if topic not in metadata.topics]
        if not missing:
            return
        replication = internal.replication or min(_REPLICATION, len(metadata.brokers))
        wanted = [
            NewTopic(
                topic,
                num_partitions=_PARTITIONS.get(topic, 1),
                replication_factor=replication,
                config={**configs(topic, internal), "min.insync.replicas": str(max(1, replication - 1))},
            )
            for topic in missing
        ]
        for topic, outcome in client.create_topics(wanted, operation_timeout=READ_SECONDS).items():
            _created(endpoint, topic, outcome)
    except KafkaException as failure:
        raise unusable(endpoint, "the internal topics", failure) from failure
    _await_leaders(endpoint, client, missing)


def _created(endpoint: ClusterEndpoint, topic: str, outcome: Future[None]) -> None:
    try:
        outcome.result()
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise unusable(endpoint, topic, failure) from failure


def _await_leaders(endpoint: ClusterEndpoint, client: AdminClient, topics: list[str]) -> None:
    """Waits for leaders: a broker answers "created" before all brokers know the topic and its leader."""
    deadline = time.monotonic() + READ_SECONDS
    pending = set(topics)
    while pending:
        for topic in list(pending):
            known = client.list_topics(topic, timeout=READ_SECONDS).topics[topic]
            if known.error is None and known.partitions and known.partitions[0].leader >= 0:
                pending.discard(topic)
        if pending and time.monotonic() > deadline:
            raise Failure(
                error(
                    f"no leader at {endpoint.cluster} for {READ_SECONDS:.0f} s: {', '.join(sorted(pending))}",
                    "look at the brokers of the cluster, then run this again",
                )
            )


WRITE_SECONDS = 60.0
_SHOWN = 200  # bytes of a key


def read_registry(endpoint: ClusterEndpoint) -> tuple[RegistryEntry, ...]:
    """Returns every entry, sorted by address. A cluster without a registry owns nothing.

    An entry that can't be read is a Failure: its object counts as unknown, not as unowned.
    """
    entries: list[RegistryEntry] = []
    problems: list[Diagnostic] = []
    for key, record in compacted(read(endpoint, REGISTRY)).items():
        if record.value is None:
            continue
        try:
            entries.append(decode_owned(key, record.value))
        except UnreadableValue as wrong:
            problems.append(_unreadable(endpoint, key, record.offset, wrong))
    if problems:
        raise Failure(problems)
    return tuple(sorted(entries, key=lambda entry: entry.address))


def _unreadable(endpoint: ClusterEndpoint, key: bytes, offset: int, wrong: UnreadableValue) -> Diagnostic:
    name = repr(key[:_SHOWN])[1:]
    return error(
        f"{REGISTRY} at {endpoint.cluster}: the entry {name} at offset {offset} can't be read: {wrong}",
        "only repl may write there: see which principals have WRITE on it; then delete the entry by a record "
        "with its key and no value, and run repl import --adopt for what it owned",
    )


class RegistryWriter:
    """Writes entries. The caller holds the cluster's lease."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def write(self, own: Sequence[RegistryEntry] = (), disown: Sequence[Address] = ()) -> None:
        """Writes entries, and removes those in `disown`, and waits until they are acknowledged."""
        records: list[tuple[bytes, bytes | None]] = [
            (registry_key(entry.address), encode_owned(entry)) for entry in own
        ]
        records += [(registry_key(address), None) for address in disown]
        append(self._producer, REGISTRY, records, WRITE_SECONDS)
