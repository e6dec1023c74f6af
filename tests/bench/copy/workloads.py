"""What is copied: the shapes of records, the same for every side."""

import random
import struct
from dataclasses import dataclass
from typing import Final, Literal

PARTITIONS: Final = 4
_WORDS: Final = ("express", "standard", "gift", "return", "backorder", "partial", "priority", "pickup")


@dataclass(frozen=True, slots=True)
class Workload:
    """`megabytes` of record values lie at the source before a side starts: more than it copies meanwhile.

    `batch_records` bounds the batches of the application's producer. `travels` is the share of the records
    that reach the destination; rates are of records at the source. With `schemas`, each value begins with the
    id of a schema, in whose place the flow writes the id that the destination's registry gave.
    """

    name: str
    value_bytes: int
    compression: str
    megabytes: int
    linger_ms: int = 20
    batch_records: int = 10_000
    provenance: Literal["batch", "headers"] = "batch"
    travels: float = 1.0
    schemas: bool = False

    @property
    def topic(self) -> str:
        """Workloads with the same records share them."""
        schemas = "-schemas" if self.schemas else ""
        return f"bench-{self.value_bytes}-{self.compression}-{self.batch_records}{schemas}"


THROUGHPUT: Final = (
    Workload("1k-none", 1024, "none", 5_000),
    Workload("1k-lz4", 1024, "lz4", 9_000),
    Workload("100b-lz4", 100, "lz4", 3_600),
    # What an application with linger 0 sends at moderate rates: batches of a few records.
    Workload("100b-tiny", 100, "none", 1_000, linger_ms=0, batch_records=8),
    Workload("1k-headers", 1024, "none", 5_000, provenance="headers"),
    Workload("1k-schemas", 1024, "none", 5_000, schemas=True),
)
SCHEMA_ID: Final = 7  # at the source
LATENCY: Final = Workload("latency-1000", 1024, "none", 0, linger_ms=0)


def values_of(workload: Workload) -> list[bytes]:
    """The values of the workload's records."""
    if not workload.schemas:
        return values(workload.value_bytes)
    prefix = struct.pack(">bI", 0, SCHEMA_ID)
    return [prefix + value for value in values(workload.value_bytes - len(prefix))]


def values(value_bytes: int, count: int = 16_384) -> list[bytes]:
    """JSON as applications write it; half of it is noise, so that compression has its usual work."""
    dice = random.Random(7)
    return [_value(dice, value_bytes) for _ in range(count)]


def _value(dice: random.Random, size: int) -> bytes:
    text = f'{{"id":{dice.randrange(10**9)},"amount":{dice.randrange(10**5)},"kind":"{dice.choice(_WORDS)}"'
    while len(text) < size - 2:
        text += f',"{dice.choice(_WORDS)}":"{dice.getrandbits(64):016x}","state":"{dice.choice(_WORDS)}"'
    return text[: size - 1].encode() + b"}"
