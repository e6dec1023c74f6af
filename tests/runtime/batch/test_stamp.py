"""The header that goes out, and only the header: bodies are not copied."""

import pytest

from runtime.batch import Codec, next_sequence, stamp, walk
from tests.runtime.batch.forge import HERE, batch_bytes, batches, read_back, record

RECORDS = [record(90 + at, b"x" * at) for at in range(5)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("more", [0, 0x10, 0x40, 0x4080, 0x50])
def test_only_whose_it_is_changes(codec: Codec, more: int):
    source = batches(batch_bytes(RECORDS, codec, producer=(5, 6, 7), more=more))[0]
    stamped = stamp(source, producer_id=1 << 40, producer_epoch=3, sequence=77)
    assert stamped.body is source.body
    assert stamped.size == source.size
    (sent,) = batches(stamped.header + stamped.body)
    assert (sent.base_offset, sent.leader_epoch, sent.attributes) == (0, -1, int(codec) | 0x10)
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence) == (1 << 40, 3, 77)
    assert sent[6:9] == source[6:9]
    assert read_back(bytes(stamped.header + stamped.body)) == [
        one._replace(offset=at) for at, one in enumerate(RECORDS)
    ]


def test_append_time_is_never_stamped_because_its_timestamps_would_change():
    with pytest.raises(AssertionError, match="rewrite"):
        stamp(batches(batch_bytes(RECORDS, more=0x08))[0], 1, 1, 1)


def test_a_stamped_batch_walks():
    header, body = stamp(batches(batch_bytes(RECORDS))[0], 1, 2, 3)
    assert walk(header + body, HERE).failure is None


@pytest.mark.parametrize(
    ("sequence", "records", "following"),
    [
        (0, 1, 1),
        (2**31 - 2, 1, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 5, 3),
        (2**31 - 1, 2**31 - 1, 2**31 - 2),
    ],
)
def test_sequences_wrap_to_zero(sequence: int, records: int, following: int):
    assert next_sequence(sequence, records) == following
