"""The checkpoints topic: the newest translation of each group's offset, for audit and against feedback.

`["checkpoint", flow, group, topic, partition]` → Checkpoint, by the topic's name at the source. The topic is
compacted. Whoever syncs groups in the other direction compares what it finds with what was written here: an
offset that this product wrote is no group's own.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

_VERSION = b"\x01"


class CheckpointState(StrEnum):
    """`translated`: the destination has it. `ahead`: the group stands further there already. `ours`: what
    stands at the source was written by this product, nothing is to be done.
    """

    TRANSLATED = "translated"
    PENDING = "pending"
    REFUSED = "refused"
    AHEAD = "ahead"
    UNMAPPED = "unmapped"
    OURS = "ours"


class CheckpointKey(NamedTuple):
    flow: str
    group: str
    topic: str
    partition: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """`destination` is what `source` was translated to, -1 where it has no translation now.

    `written` is what this flow last committed at the destination, `written_source` the source offset that it
    stands for. It is said before it is done: `before` is what was written the time before, and stands there
    if the job died in between. `by_time`: the translation went by the time of a record, not by the map.
    `floor`: of a topic that several clusters write, the smallest position over the other origins, which only
    the source's maps can tell; -1 where there is none. Fields are only ever added, at the end, with a
    default.
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
        """Offsets that this product may have put at the destination."""
        return frozenset(offset for offset in (self.written, self.before) if offset >= 0)


class UnreadableCheckpoint(UnreadableValue):
    """Of a version that this one does not know."""


def encode_key(key: CheckpointKey) -> bytes:
    return msgspec.json.encode(["checkpoint", *key])


def decode_key(key: bytes | None) -> CheckpointKey | None:
    """None for a key of a newer version: a reader ignores what it does not know."""
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
