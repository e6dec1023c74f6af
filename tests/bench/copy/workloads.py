"""What is copied: the shapes of records, the same for every side."""

import random
from dataclasses import dataclass
from typing import Final, Literal

PARTITIONS: Final = 4
_WORDS: Final = ("express", "standard", "gift", "return", "backorder", "partial", "priority", "pickup")


@dataclass(frozen=True, slots=True)
class Workload:
    """`megabytes` of record values lie at the source before a side starts: more than it copies meanwhile.

    `batch_records` bounds the batches of the application's producer. `travels` is the share of the records
    that reach the destination; rates are of records at the source.
    """

    name: str
    value_bytes: int
    compression: str
    megabytes: int
    linger_ms: int = 20
    batch_records: int = 10_000
    provenance: Literal["batch", "headers"] = "batch"
    travels: float = 1.0

    @property
    def topic(self) -> str:
        """Workloads with the same records share them."""
        return f"bench-{self.value_bytes}-{self.compression}-{self.batch_records}"


THROUGHPUT: Final = (
    Workload("1k-none", 1024, "none", 5_000),
    Workload("1k-lz4", 1024, "lz4", 9_000),
    Workload("100b-lz4", 100, "lz4", 3_600),
    # What an application with linger 0 sends at moderate rates: batches of a few records.
    Workload("100b-tiny", 100, "none", 1_000, linger_ms=0, batch_records=8),
    Workload("1k-headers", 1024, "none", 5_000, provenance="headers"),
)
LATENCY: Final = Workload("latency-1000", 1024, "none", 0, linger_ms=0)


def values(value_bytes: int, count: int = 16_384) -> list[bytes]:
    """JSON as applications write it; half of it is noise, so that compression has its usual work."""
    dice = random.Random(7)
    return [_value(dice, value_bytes) for _ in range(count)]


def _value(dice: random.Random, size: int) -> bytes:
    text = f'{{"id":{dice.randrange(10**9)},"amount":{dice.randrange(10**5)},"kind":"{dice.choice(_WORDS)}"'
    while len(text) < size - 2:
        text += f',"{dice.choice(_WORDS)}":"{dice.getrandbits(64):016x}","state":"{dice.choice(_WORDS)}"'
    return text[: size - 1].encode() + b"}"
