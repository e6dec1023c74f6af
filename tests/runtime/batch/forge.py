"""Batches and record sets made by aiokafka's codec, which is another's, and by hand where it can't."""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import cramjam
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c

from runtime.batch import Batch, Codec, PreparedBatches, Record, RecordSet, stamp, walk
from runtime.batch.varint import encode, signed
from runtime.contract.spec.naming import TopicPartition

HERE = TopicPartition("orders", 3)
START = 1_700_000_000_000


def record(offset: int, value: bytes | None = b"v", **fields: Any) -> Record:
    key: bytes | None = fields.get("key", b"k")
    return Record(
        offset, fields.get("timestamp", START + offset), key, value, tuple(fields.get("headers", ()))
    )


def batch_bytes(
    records: Sequence[Record],
    codec: Codec = Codec.NONE,
    *,
    base: int | None = None,
    last: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    more: int = 0,
    max_timestamp: int | None = None,
) -> bytes:
    """The batch as a log holds it; `more` attribute bits are set, and `last` makes a hole at the end."""
    base = records[0].offset if base is None else base
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, 1 << 30)
    for one in records:
        builder.append(one.offset - base, one.timestamp, one.key, one.value, list(one.headers))
    data = bytearray(builder.build())
    if not records:
        raise ValueError("use empty_batch")
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, 7)  # a leader epoch
    struct.pack_into(">h", data, 21, int(codec) | more)
    struct.pack_into(">i", data, 23, (records[-1].offset if last is None else last) - base)
    struct.pack_into(">i", data, 57, len(records))
    if max_timestamp is not None:
        struct.pack_into(">q", data, 35, max_timestamp)
    return summed(data)


def overflowing(first: int, base: int, *timestamps: int, attributes: int = 0) -> bytes:
    """A batch with this base timestamp, whose deltas give the timestamps once they have overflowed."""
    body = b""
    for number, timestamp in enumerate(timestamps):
        content = b"\0" + encode(signed(timestamp - base)) + encode(number) + encode(-1) + b"\x02v\0"
        body += encode(len(content)) + content
    header = struct.pack(
        ">qiibIhiqqqhii",
        *(first, 49 + len(body), 7, 2, 0, attributes, len(timestamps) - 1, base, max(timestamps), -1, -1, -1),
        len(timestamps),
    )
    return summed(bytearray(header + body))


def empty_batch(base: int, last: int, producer: tuple[int, int, int] = (9, 0, 0)) -> bytes:
    """What compaction leaves of a batch whose records are all gone but whose producer it must remember."""
    return summed(
        bytearray(struct.pack(">qiibIhiqqqhii", base, 49, 7, 2, 0, 0, last - base, -1, -1, *producer, 0))
    )


def control_batch(offset: int, producer: int, kind: int, epoch: int = 0) -> bytes:
    key = struct.pack(">hh", 0, kind)
    value = struct.pack(">hi", 0, 0)
    return batch_bytes([Record(offset, START, key, value, ())], producer=(producer, epoch, -1), more=0x30)


def summed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def legacy_bytes(magic: int, codec: Codec, records: Iterable[tuple[int, Record]]) -> bytes:
    """Messages with the offsets they have inside: absolute, or relative in a compressed v1."""
    if magic == 0 and codec == Codec.LZ4:
        return _ancient_lz4(legacy_bytes(0, Codec.NONE, records))
    builder = LegacyRecordBatchBuilder(magic, int(codec), 1 << 30)
    for offset, one in records:
        builder.append(offset, one.timestamp, one.key, one.value)
    return bytes(builder.build())


def _ancient_lz4(messages: bytes) -> bytes:
    """As clients of v0 did: the frame's header checksum is wrong."""
    frame = bytearray(cramjam.lz4.compress(messages))
    frame[6] ^= 0x5A
    content = struct.pack(">bbii", 0, int(Codec.LZ4), -1, len(frame)) + frame
    return struct.pack(">qiI", 0, 4 + len(content), zlib.crc32(content)) + content


def sets(*parts: bytes) -> list[RecordSet]:
    walked = walk(b"".join(parts), HERE)
    assert walked.failure is None
    assert walked.needed == 0
    return walked.sets


def batches(*parts: bytes) -> list[Batch]:
    found = sets(*parts)
    assert all(isinstance(one, Batch) for one in found)
    return [one for one in found if isinstance(one, Batch)]


def read_back(data: bytes) -> list[Record]:
    """As aiokafka reads one batch of v2; its checksum too."""
    batch = DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    return [Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch]


def arrived(prepared: PreparedBatches) -> list[Record]:
    """What another's reader finds at the destination, under the source offsets that its runs say."""
    found: list[Record] = []
    for out in prepared.outgoing:
        header, body = stamp(out.batch, 1, 0, 0)
        assert len(header) + len(body) == out.batch.size
        there = read_back(bytes(header + body))
        assert [one.offset for one in there] == list(range(out.batch.last_offset_delta + 1))
        assert out.batch.max_timestamp == max(one.timestamp for one in there)
        sources = [at for _, source, count in out.runs for at in range(source, source + count)]
        assert [at for delta, _, count in out.runs for at in range(delta, delta + count)] == list(
            range(len(there))
        )
        found += [one._replace(offset=source) for one, source in zip(there, sources, strict=True)]
    return found
