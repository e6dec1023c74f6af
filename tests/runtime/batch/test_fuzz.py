"""Bytes damaged on their way, or made by an enemy: an answer in bounded time, never another exception."""

import random
import struct
import time
import zlib
from contextlib import suppress

import pytest

from runtime.batch import (
    AbortedTransactions,
    BatchFailure,
    Codec,
    Merge,
    RewriteSpec,
    prepare,
    records,
    stamp,
    walk,
)
from runtime.contract.records.provenance import HEADER, ClusterPartition, ClusterTopic, Origin, encode
from tests.runtime.batch.forge import HERE, START, batch_bytes, control_batch, legacy_bytes, record, summed

ROUNDS = 200
LONGEST = 20.0  # seconds for one damaged response; a sound one takes a millisecond
SOME = [
    record(0),
    record(1, None, key=None),
    record(2, b"x" * 200, headers=[(HEADER, encode(Origin("dc2-id", "orders", 1, 5, 9)))]),
    record(3, b"", headers=[("a", None), ("b", b"c")]),
]
SPECS = [
    RewriteSpec(HERE, 1_000_000, start=1, max_unpacked=1_000_000),
    RewriteSpec(
        HERE,
        400,
        provenance=ClusterPartition("dc1-id", "orders", 3),
        home=ClusterTopic("dc2-id", "orders"),
        max_unpacked=1_000_000,
    ),
    RewriteSpec(
        HERE,
        10_000,
        merge=Merge(),
        provenance=ClusterPartition("dc1-id", "orders", 3),
        max_unpacked=1_000_000,
    ),
]


def digest(response: bytes) -> None:
    """All that a slot does with a response; failures are values."""
    walked = walk(response, HERE)
    for spec in SPECS:
        for out in prepare(walked.sets, spec, START, AbortedTransactions([(5, 0)])).outgoing:
            if not out.batch.log_append_time:
                stamp(out.batch, 1, 2, 3)
    for member in walked.sets:
        with suppress(BatchFailure):
            records(member, HERE, 1_000_000)


def damage(data: bytes, dice: random.Random) -> bytearray:
    copy = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(copy))
        match dice.randrange(5):
            case 0:
                copy[at] ^= 1 << dice.randrange(8)
            case 1:
                copy[at] = dice.choice([0, 0x7F, 0x80, 0xFF])
            case 2:
                del copy[at : at + dice.randrange(1, 20)]
            case 3:
                copy[at:at] = dice.randbytes(dice.randrange(1, 20))
            case _:
                struct.pack_into(
                    ">i", copy, min(at, len(copy) - 4), dice.choice([-1, 0, 2**31 - 1, -(2**31)])
                )
        if len(copy) < 8:
            return copy
    return copy


def timely(response: bytes, seed: int) -> None:
    began = time.monotonic()
    digest(response)
    assert time.monotonic() - began < LONGEST, f"seed {seed}"


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("sum_again", [False, True])
def test_damaged_batches(codec: Codec, sum_again: bool):
    """With the checksum made right again, the damage reaches the records."""
    dice = random.Random(f"{codec}{sum_again}")
    sound = batch_bytes(SOME, codec)
    for seed in range(ROUNDS):
        bad = damage(sound, dice)
        if sum_again and len(bad) >= 61:
            bad[16] = 2
            struct.pack_into(">i", bad, 8, len(bad) - 12)
            bad = bytearray(summed(bad))
        timely(control_batch(0, 5, 0)[:8] + bytes(bad)[8:] + batch_bytes([record(9)]), seed)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_damaged_old_messages(magic: int, codec: Codec):
    dice = random.Random(f"{codec}{magic}")
    sound = legacy_bytes(magic, codec, enumerate(SOME))
    for seed in range(ROUNDS):
        bad = damage(sound, dice)
        if seed % 2 and len(bad) >= 26:
            struct.pack_into(">i", bad, 8, len(bad) - 12)
            struct.pack_into(">I", bad, 12, zlib.crc32(bytes(bad[16:])))
        timely(bytes(bad), seed)


def test_noise():
    dice = random.Random(1)
    for seed in range(ROUNDS):
        timely(dice.randbytes(dice.randrange(200)), seed)


def test_a_count_of_two_billion_ends_at_once():
    bad = bytearray(batch_bytes(SOME))
    struct.pack_into(">i", bad, 23, 2**31 - 2)
    struct.pack_into(">i", bad, 57, 2**31 - 1)
    timely(summed(bad), 0)
