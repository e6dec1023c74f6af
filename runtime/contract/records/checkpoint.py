"""The checkpoints topic holds the newest translation of each group's offset, for audit and against feedback.

`["checkpoint", flow, group, topic, partition]` → Checkpoint, by the topic's name at the source. The topic is
compacted. A flow that syncs groups in the other direction compares the offsets that it finds with these
records: an offset that this product wrote is not the group's own commit.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

_VERSION = b"\x01"


class CheckpointState(StrEnum):
    """Lists the results of translating one offset of a group.

    `translated`: the destination has the translated offset. `ahead`: the group's offset at the destination is
    larger already. `ours`: the offset at the source was written by this product, so nothing is to be done.
    """

    TRANSLATED = "translated"
    PENDING = "pending"
    REFUSED = "refused"
    AHEAD = "ahead"
    UNMAPPED = "unmapped"
    OURS = "ours"


class CheckpointKey(NamedTuple):
    """Identifies the checkpoint of one group in one partition, by the topic's name at the source."""

    flow: str
    group: str
    topic: str
    partition: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """Holds one translation: `destination` is the translated offset of `source`, -1 where it has none now.

    `written` is the offset that this flow last committed at the destination, `written_source` the source
    offset that it translates. The checkpoint is written before the commit. `before` is the previous value of
    `written`, and is the offset at the destination if the job died in between. `by_time`: the translation
    used the time of a record, not the map. `floor`: for a topic that several clusters write, the smallest
    position over the other origins, which only the source's maps contain; -1 where there is none. Fields are
    only ever added, at the end, with a default.
    """

    source: int
    destination: int
    at_ms: int
    state: CheckpointState
    destination_topic: str
    clamped: bool = False
    why: str = ""
    written: int = -1
    written_source: int = -1
    written_ms: int = 0
    before: int = -1
    by_time: bool = False
    floor: int = -1

    @property
    def ours(self) -> frozenset[int]:
        """Returns the offsets that this product may have committed at the destination."""
        return frozenset(offset for offset in (self.written, self.before) if offset >= 0)


class UnreadableCheckpoint(UnreadableValue):
    """The checkpoint has a version that this runtime does not know."""


def encode_key(key: CheckpointKey) -> bytes:
    return msgspec.json.encode(["checkpoint", *key])


def decode_key(key: bytes | None) -> CheckpointKey | None:
    """Decodes a key. Returns None for a key of a newer version: readers ignore unknown keys."""
    match record_values.key_parts(key):
        case ["checkpoint", str(flow), str(group), str(topic), int(partition)]:
            return CheckpointKey(flow, group, topic, partition)
    return None


def encode(checkpoint: Checkpoint) -> bytes:
    return _VERSION + msgspec.msgpack.encode(checkpoint)


_decoder = msgspec.msgpack.Decoder(Checkpoint)


def decode(value: bytes) -> Checkpoint:
    if value[:1] != _VERSION:
        raise UnreadableCheckpoint(
            f"checkpoint of version {value[:1].hex() or 'none'}, this runtime reads 01"
        )
    try:
        return record_values.decode(_decoder, value[1:])
    except UnreadableValue as error:
        raise UnreadableCheckpoint(f"checkpoint: {error}") from error
