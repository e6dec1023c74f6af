"""The table of docs/internals/batch.md: python -m tests.bench.bench_batch"""

import random
import struct
import time
from collections.abc import Callable

from msgspec.structs import replace

from runtime.batch import Codec, Merge, Record, RewriteSpec, prepare, stamp, walk
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.spec.naming import TopicPartition
from tests.runtime.batch.forge import START, batch_bytes

WHERE = TopicPartition("orders", 0)
PASSED = RewriteSpec(WHERE, max_batch=8 << 20)
HEADED = replace(
    PASSED,
    provenance=ClusterPartition("4L6g3nShT-eMCtK--X86sw", "orders", 0),
    home=ClusterTopic("x" * 22, "orders"),
)
SPECS = {
    "passed": PASSED,
    "headers": HEADED,
    "joined": replace(PASSED, merge=Merge()),
    "joined, headers": replace(HEADED, merge=Merge()),
}
RESPONSES = {
    "1 KB plain": (1000, 1000, Codec.NONE, 20),
    "1 KB lz4": (1000, 1000, Codec.LZ4, 20),
    "100 B plain": (8000, 100, Codec.NONE, 3),
    "100 B lz4": (8000, 100, Codec.LZ4, 3),
    "100 B zstd": (8000, 100, Codec.ZSTD, 3),
    "100 B alone, plain": (1, 100, Codec.NONE, 5000),
    "100 B alone, lz4": (1, 100, Codec.LZ4, 5000),
}


def response(records: int, size: int, codec: Codec, batches: int) -> bytes:
    dice = random.Random(1)
    made = []
    for at in range(records):
        value = b'{"id":%d,"user":"%s","amount":%d}' % (at, dice.randbytes(12).hex().encode(), at * 7)
        value = (value * (size // len(value) + 1))[:size]
        made.append(Record(at, START + at, b"key%d" % at, value, ()))
    one = batch_bytes(made, codec)
    return b"".join(struct.pack(">q", at * records) + one[8:] for at in range(batches))


def best(step: Callable[[], object], rounds: int = 7) -> float:
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        step()
        seconds.append(time.process_time() - began)
    return min(seconds)


def main() -> None:
    for name, (records, size, codec, batches) in RESPONSES.items():
        data = response(records, size, codec, batches)
        for way, spec in SPECS.items():
            if spec.merge and records > 1:
                continue

            def copy(data: bytes = data, spec: RewriteSpec = spec) -> None:
                for out in prepare(walk(data, WHERE).sets, spec, START).outgoing:
                    stamp(out.batch, 1, 2, 3)

            seconds = best(copy)
            each, all_records = seconds / batches * 1e6, records * batches
            print(
                f"{name:20} {way:16} {each:9.1f} µs a batch {all_records / seconds / 1e3:9.0f} k records/s"
                f" {len(data) / seconds / 1e6:7.0f} MB/s"
            )


if __name__ == "__main__":
    main()
