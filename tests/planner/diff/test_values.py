"""Two values that mean the same need no change; a number of milliseconds is read as a duration."""

import pytest

from planner.diff.values import bytes_as_text, normal, readable


@pytest.mark.parametrize(
    ("key", "one", "other", "same"),
    [
        ("retention.ms", "604800000", " 604800000", True),
        ("retention.ms", "604800000", "604800001", False),
        ("retention.ms", "-1", "-1", True),
        ("retention.ms", "a week", "604800000", False),
        ("min.cleanable.dirty.ratio", "0.50", "0.5", True),
        ("cleanup.policy", "compact,delete", "delete, compact", True),
        ("cleanup.policy", "compact", "compact,delete", False),
        ("leader.replication.throttled.replicas", "0:1,1:2", "1:2,0:1", True),
        ("preallocate", "TRUE", "true", True),
        ("preallocate", "maybe", "true", False),
        ("confluent.placement", "1.10", "1.1", False),
        ("confluent.tier.enable", "true", "true", True),
        ("compression.type", "zstd", None, False),
    ],
)
def test_the_same_when_the_broker_takes_it_the_same(key, one, other, same) -> None:
    assert (normal(key, one) == normal(key, other)) is same


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "5400000", "90m"),
        ("retention.ms", "1234", "1234"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "0", "0"),
        ("message.timestamp.after.max.ms", "9223372036854775807", "no limit"),
        ("segment.bytes", "1073741824", "1GiB"),
        ("max.message.bytes", "5000000", "5MB"),
        ("max.message.bytes", "1048588", "1048588"),
        ("flush.messages", "1000", "1000"),
    ],
)
def test_readable(key, value, shown) -> None:
    assert readable(key, value) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [(12, "12 bytes"), (1_500, "1.5 KB"), (2_340_000_000, "2.3 GB"), (7 * 10**12, "7.0 TB")],
)
def test_bytes_as_text(size, shown) -> None:
    assert bytes_as_text(size) == shown
