"""Checkpoints: what is written is read, and what is not known is no guess."""

import msgspec
import pytest

from runtime.contract.records.group_records import (
    Checkpoint,
    CheckpointKey,
    CheckpointState,
    UnreadableCheckpoint,
    decode_checkpoint,
    decode_checkpoint_key,
    encode_checkpoint,
    encode_checkpoint_key,
)

KEY = CheckpointKey("dc1-to-dc2", "billing", "orders", 3)
VALUE = Checkpoint(
    source=10,
    destination=8,
    at_ms=5,
    state=CheckpointState.REFUSED,
    destination_topic="dc1.orders",
    clamped=True,
    why="a member is connected",
    written=7,
    written_source=9,
    written_ms=4,
    before=6,
)


def test_round_trip() -> None:
    assert decode_checkpoint_key(encode_checkpoint_key(KEY)) == KEY
    assert decode_checkpoint(encode_checkpoint(VALUE)) == VALUE


def test_keys_never_change() -> None:
    assert encode_checkpoint_key(KEY) == b'["checkpoint","dc1-to-dc2","billing","orders",3]'


def test_a_key_of_a_newer_version_is_passed_over() -> None:
    assert decode_checkpoint_key(b'["later",1]') is None
    assert decode_checkpoint_key(b"nonsense") is None
    assert decode_checkpoint_key(None) is None


def test_fields_added_later_have_defaults() -> None:
    old = b"\x01" + msgspec.msgpack.encode([10, 8, 5, "translated", "orders"])
    assert decode_checkpoint(old) == Checkpoint(10, 8, 5, CheckpointState.TRANSLATED, "orders")


@pytest.mark.parametrize("value", [b"", b"\x02\x90", b"\x01\xff"])
def test_another_version_is_an_error(value: bytes) -> None:
    with pytest.raises(UnreadableCheckpoint, match="checkpoint"):
        decode_checkpoint(value)


def test_only_what_was_written_is_ours() -> None:
    assert VALUE.ours == {7, 6}
    assert Checkpoint(1, 1, 1, CheckpointState.AHEAD, "t").ours == frozenset()
