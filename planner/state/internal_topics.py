"""Creates the control plane's internal topics, encodes their records, and reads and writes the registry.

Records are versioned, readable JSON. The registry of a cluster says which topology owns which object there,
as last applied.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from planner.kafka.client import ClusterClient
from planner.kafka.failures import ClusterFailure, RequestRefused
from planner.kafka.log import READ_SECONDS, LogWriter, compacted, read, unusable
from planner.model.address import Address, Kind
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.observed import RegistryEntry
from planner.model.topology import QuotaEntity
from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import REGISTRY
from runtime.contract.spec.topic_settings import InternalSpec, at_destination, of_plans
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.changes import CreateTopicsRequest, NewTopic
from runtime.kafka.protocol.metadata import AnyMetadataRequest

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
    fields = msgspec.structs.asdict(entry)
    del fields["address"]  # it is the key
    return encode(fields)


def decode_owned(key: bytes, data: bytes) -> RegistryEntry:
    """Returns a registry entry. Raises UnknownVersion or UnreadableValue."""
    try:
        address = Address.parse(key.decode())
        if address.kind is Kind.QUOTA:
            QuotaEntity.named(address.name)
    except ValueError as wrong:
        raise UnreadableValue(str(wrong)) from None
    body = decode(f"the registry entry of {address}", data) | {"address": address}
    fields = {name: body[name] for name in RegistryEntry.__struct_fields__ if name in body}
    return shaped(fields, RegistryEntry)


_PAUSE_S = 0.1


async def ensure(client: ClusterClient, topics: Sequence[str], internal: InternalSpec) -> None:
    """Creates missing topics, as durable as the cluster allows, and waits until they can be written."""
    try:
        cluster = await client.ask(AnyMetadataRequest(topics))
        missing = [
            topic.name for topic in cluster.topics if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if not missing:
            return
        wanted = [
            NewTopic(topic.name, topic.partitions, *topic.durable(internal, len(cluster.brokers)))
            for topic in (*at_destination(), *of_plans(internal))
            if topic.name in missing
        ]
        refused = await _create(client, wanted)
    except ClusterFailure as failure:
        raise unusable(client, "the internal topics", failure) from failure
    for topic, refusal in refused.items():
        if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise unusable(client, topic, refusal)
    await _await_leaders(client, missing)


async def _create(client: ClusterClient, topics: Sequence[NewTopic]) -> dict[str, RequestRefused]:
    """Creates the topics, and returns the refused ones. What fails for a moment is sent again."""
    request = CreateTopicsRequest(topics, int(READ_SECONDS * 1000))
    deadline = time.monotonic() + READ_SECONDS
    while True:
        over = time.monotonic() > deadline
        try:
            refusals = await client.ask_controller(request)
        except ClusterFailure as failure:
            if over or not failure.transient:
                raise
        else:
            refused = {topic: RequestRefused(why.error, why.message) for topic, why in refusals.items()}
            if over or not any(refusal.transient for refusal in refused.values()):
                return refused
        client.forget_controller()
        await asyncio.sleep(_PAUSE_S)


async def _await_leaders(client: ClusterClient, topics: Sequence[str]) -> None:
    """Waits for leaders: a broker answers "created" before all brokers know the topic and its leader."""
    deadline = time.monotonic() + READ_SECONDS
    while True:
        try:
            listed = (await client.ask(AnyMetadataRequest(topics))).topics
        except ClusterFailure as failure:
            raise unusable(client, "the internal topics", failure) from failure
        pending = [
            topic.name
            for topic in listed
            if topic.error or 0 not in topic.partitions or topic.partitions[0].leader < 0
        ]
        if not pending:
            return
        if time.monotonic() > deadline:
            raise Failure(
                error(
                    f"no leader at {client.name} for {READ_SECONDS:.0f} s: {', '.join(sorted(pending))}",
                    "look at the brokers of the cluster, then run this again",
                )
            )
        await asyncio.sleep(_PAUSE_S)


_SHOWN = 200  # bytes of a key


async def read_registry(client: ClusterClient) -> tuple[RegistryEntry, ...]:
    """Returns every entry, sorted by address. A cluster without a registry owns nothing.

    An entry that can't be read is a Failure: its object counts as unknown, not as unowned.
    """
    entries: list[RegistryEntry] = []
    problems: list[Diagnostic] = []
    for key, record in compacted(await read(client, REGISTRY)).items():
        if record.value is None:
            continue
        try:
            entries.append(decode_owned(key, record.value))
        except UnreadableValue as wrong:
            problems.append(_unreadable(client.name, key, record.offset, wrong))
    if problems:
        raise Failure(problems)
    return tuple(sorted(entries, key=lambda entry: entry.address))


def _unreadable(cluster: str, key: bytes, offset: int, wrong: UnreadableValue) -> Diagnostic:
    name = repr(key[:_SHOWN])[1:]
    return error(
        f"{REGISTRY} at {cluster}: the entry {name} at offset {offset} can't be read: {wrong}",
        "only repl may write there: see which principals have WRITE on it; then delete the entry by a record "
        "with its key and no value, and run repl import --adopt for what it owned",
    )


async def write_registry(
    log: LogWriter, own: Sequence[RegistryEntry] = (), disown: Sequence[Address] = ()
) -> None:
    """Writes entries, removes those in `disown`, and waits until both are acknowledged.

    The caller holds the cluster's lease.
    """
    records: list[tuple[bytes, bytes | None]] = [
        (registry_key(entry.address), encode_owned(entry)) for entry in own
    ]
    records += [(registry_key(address), None) for address in disown]
    await log.append(REGISTRY, records)
