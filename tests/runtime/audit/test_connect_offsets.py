"""The records of Connect's offsets topic → the next source offset of each partition."""

import json

import pytest

from runtime.audit.predecessor.progress import UnreadableOffset, next_offsets
from runtime.kafka.protocol.offsets import TopicPartition


def key(topic: str = "orders", partition: int = 0, cluster: str = "A", connector: str = "C") -> bytes:
    place = {"cluster": cluster, "partition": partition, "topic": topic}
    return json.dumps([connector, place], separators=(",", ":")).encode()


def test_the_last_copied_record_is_stored_and_the_next_one_is_copied() -> None:
    records = [(key(), b'{"offset":41}'), (key(partition=1), b'{"offset":0}')]
    assert next_offsets(records, "A") == {TopicPartition("orders", 0): 42, TopicPartition("orders", 1): 1}


@pytest.mark.parametrize(
    "other",
    [
        key(cluster="C"),
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        b'["MirrorCheckpointConnector",{"group":"g","partition":0,"topic":"orders"}]',
        b'["file-source",{"filename":"x"}]',
        b'["C",{"cluster":"A","partition":"0","topic":"orders"}]',
        b"no json",
        b"[[[",
        b"\xff",
    ],
)
def test_keys_of_other_connectors_and_clusters_are_passed_over(other: bytes) -> None:
    assert next_offsets([(other, b'{"offset":7}')], "A") == {}


def test_a_negative_offset_is_no_position() -> None:
    assert next_offsets([(key(), b'{"offset":-1}')], "A") == {}


def test_connect_reads_its_own_key_and_not_one_with_its_parts_in_another_order() -> None:
    by_hand = b'["C",{"topic":"orders","partition":0,"cluster":"A"}]'
    at = TopicPartition("orders", 0)
    assert next_offsets([(key(), b'{"offset":1}'), (by_hand, b'{"offset":9}')], "A") == {at: 2}
    assert next_offsets([(by_hand, b'{"offset":9}')], "A") == {at: 10}


@pytest.mark.parametrize("value", [b"{}", b'{"offset":"7"}', b'{"offset":true}', b"7", b"no json"])
def test_a_value_that_is_no_offset_is_an_error_that_names_the_partition(value: bytes) -> None:
    with pytest.raises(UnreadableOffset, match="orders-0"):
        next_offsets([(key(), value)], "A")
