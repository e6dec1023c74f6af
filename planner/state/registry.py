"""The registry of a cluster: which topology owns which object there, as last applied."""

from collections.abc import Sequence

from confluent_kafka import Producer

from planner.kafka import ClusterEndpoint
from planner.kafka.log import append, compacted, read
from planner.model.address import Address
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.observed import RegistryEntry
from planner.state.log import decode_owned, encode_owned, registry_key
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import REGISTRY

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
