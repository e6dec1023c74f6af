"""The registry of a cluster: which topology owns which object there, as last applied."""

from collections.abc import Sequence

from confluent_kafka import Producer

from planner.kafka import Endpoint
from planner.kafka.log import append, latest, read
from planner.model.address import Address
from planner.model.owned import Owned
from planner.store.codec import decode_owned, encode_owned, registry_key
from runtime.contract.naming import REGISTRY

WRITE_SECONDS = 60.0


def read_registry(endpoint: Endpoint) -> tuple[Owned, ...]:
    """Every entry, sorted by address. A cluster that was never applied to owns nothing."""
    records = latest(read(endpoint, REGISTRY))
    entries = [decode_owned(key, record.value) for key, record in records.items() if record.value is not None]
    return tuple(sorted(entries, key=lambda entry: entry.address))


class RegistryWriter:
    """Writes entries; the caller holds the cluster's lease."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def write(self, own: Sequence[Owned] = (), disown: Sequence[Address] = ()) -> None:
        records: list[tuple[bytes, bytes | None]] = [
            (registry_key(entry.address), encode_owned(entry)) for entry in own
        ]
        records += [(registry_key(address), None) for address in disown]
        append(self._producer, REGISTRY, records, WRITE_SECONDS)
