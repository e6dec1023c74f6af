"""Values: which mean the same, and what people and the JSON output read for one. None raises."""

import pytest

from planner.diff.fields import displayed
from planner.diff.values import normal, readable


@pytest.mark.parametrize(
    ("key", "one", "other", "same"),
    [
        ("retention.ms", "604800000", " 604800000", True),
        ("retention.ms", "604800000", "604800001", False),
        ("retention.ms", "-1", "-1", True),
        ("retention.ms", "a week", "604800000", False),
        ("min.cleanable.dirty.ratio", "0.50", "0.5", True),
        ("cleanup.policy", "compact,delete", "delete, compact", True),
        ("cleanup.policy", "compact", "\x01compact", True),
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


LAKE = {"folder": "/lake", "format": "json", "layout": "{topic}/", "size": 1 << 27, "every": 60_000}
MERGES = {"compact": {"every": 3_600_000, "below": 16 << 20, "retention": 86_400_000}}
BY_HOUR = {"include": ("a", "b"), "exclude": ("c",), "every": 1_500, "mode": "exact", "sync": True}


MANY_OFFSETS = ", ".join(f"a:{one}:{one}" for one in range(20)) + " and 2 more partitions"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("rpo", 5_000, "5s"),
        ("rpo", 5_400_000, "90m"),
        ("rpo", 1_500, "1500ms"),
        ("rpo", 0, "0ms"),
        ("rpo", None, "not set"),
        ("follow", None, "off"),
        ("rate_limit", 50_000_000, "50MB/s"),
        ("rate_limit", 1_500, "1500 B/s"),
        ("rate_limit", 0, "0 B/s"),
        ("slots", None, "auto"),
        ("slots", 3, 3),
        ("topics.default_exclude", True, True),
        ("topics.include", ("a", "b"), ("a", "b")),
        ("rename", "{topic}", "{topic}"),
        ("rename", {"match": "a", "to": "b"}, "a -> b"),
        ("rename", {"table": {"c": "d", "a": "b"}}, "a -> b, c -> d"),
        ("start", "earliest", "earliest"),
        ("start", {"timestamp": 7}, "timestamp 7"),
        ("start", {"offsets": {"b": {"0": 1}, "a": {"10": 2, "9": 3}}}, "a:9:3, a:10:2, b:0:1"),
        ("start", {"offsets": {"a": {str(one): one for one in range(22)}}}, MANY_OFFSETS),
        ("origin_commits", {"group": "g", "every": 5_000}, "g every 5s"),
        ("origin_commits", None, "off"),
        ("files", LAKE, "json in /lake/{topic}/, closed at 128MiB, every 1m"),
        (
            "files",
            {**LAKE, **MERGES},
            (
                "json in /lake/{topic}/, closed at 128MiB, every 1m, files below 16MiB merged every 1h,"
                " replaced ones stay for 1d"
            ),
        ),
        ("groups", BY_HOUR, "a, b without c, synced every 1500ms, exact"),
        ("groups", {**BY_HOUR, "sync": False}, "not synced"),
        (
            "transform",
            {"value": "protobuf: shop.Customer CgYK", "key": "json:  id\n BIGINT"},
            (
                "reads the value as protobuf: shop.Customer (descriptors 55efd896a2c9)",
                "reads the key as json: id BIGINT",
            ),
        ),
        ("topics", {"a": "b"}, ("a -> b",)),
        ("conf", {"b": "2", "a": "1"}, ("a=1", "b=2")),
        ("clusters.dc1.client.sasl.password", {"env": "PASSWORD"}, "{env: PASSWORD}"),
        ("clusters.dc1.client.client.id", None, "not set"),
        ("metrics", {"host": "127.0.0.1", "port": 9404}, "127.0.0.1:9404"),
        ("metrics", {"host": "::1", "port": 0}, "::1:9404 or the next free port"),
        ("metrics", None, "off"),
        ("flows", {"orders": "active"}, ("orders (active)",)),
        ("declared", {"a": ("x", "y")}, ("a: x, y",)),
        ("copy", {}, "as released"),
        ("copy", {"lanes": 3}, '{"lanes":3}'),
        ("replication", (3, 3, 2), "3, and 2 for partition 2"),
        ("replication", 3, 3),
        ("partitions", None, None),
    ],
)
def test_displayed(name: str, value: object, shown: object) -> None:
    assert displayed((name,), value) == shown
