"""What is believed of topics and leaders, and when it is asked for again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.contract.spec.naming import TopicPartition as At
from runtime.kafka.errors import ErrorCode
from runtime.kafka.leaders import group_by_leader
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.metadata import NO_LEADER, Partition, TopicMetadata
from runtime.kafka.topics import TopicCache

A, B = b"A" * 16, b"B" * 16
ORDERS = TopicMetadata("orders", A, ErrorCode.NONE, False, {0: Partition(0, 1, 5, (1, 2), (1, 2))})


def cache(*topics: TopicMetadata) -> TopicCache:
    made = TopicCache(max_age_s=300)
    made.store(topics, now=1000)
    return made


def test_a_topic_is_found_by_name_and_by_id_until_it_is_old() -> None:
    known = cache(ORDERS)

    assert known.by_name("orders") is known.by_id(A) is ORDERS
    assert known.stale(["orders", "other"], now=1300) == ["other"]
    assert known.stale(["orders"], now=1301) == ["orders"]


def test_a_topic_made_anew_has_its_new_id_alone() -> None:
    known = cache(ORDERS, replace(ORDERS, id=B))

    assert known.by_id(A) is None
    assert known.by_id(B) is not None


def test_a_leader_that_was_deposed_is_not_believed() -> None:
    known = cache(ORDERS)
    known.store([replace(ORDERS, partitions={0: Partition(0, 2, 4, (1, 2), (2,))})], now=1001)
    assert known.by_name("orders") == ORDERS
    assert known.refreshed_at("orders") == 1001

    anew = replace(ORDERS, id=B, partitions={0: Partition(0, 2, 0, (1, 2), (2,))})
    known.store([anew], now=1002)
    assert known.by_name("orders") == anew


def test_what_has_an_error_or_no_leader_is_asked_for_again() -> None:
    gone = TopicMetadata("gone", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, {})
    headless = replace(ORDERS, name="headless", id=B, partitions={0: Partition(0, -1, 6, (1,), ())})

    assert cache(gone, headless).stale(["gone", "headless"], now=1000) == ["gone", "headless"]


def test_a_hint_is_believed_when_it_is_newer() -> None:
    known = cache(ORDERS)

    for hint in (LeaderHint(2, 5), LeaderHint(-1, 9)):
        known.learn(A, 0, hint)
        assert known.by_name("orders") is ORDERS
    known.learn(A, 7, LeaderHint(2, 6))
    known.learn(B, 0, LeaderHint(2, 6))
    known.learn(A, 0, LeaderHint(2, 6))

    topic = known.by_name("orders")
    assert topic is not None
    assert topic.partitions[0] == Partition(0, 2, 6, (1, 2), (1, 2))


def test_what_is_doubted_is_asked_for_again_and_believed_until_then() -> None:
    known = cache(ORDERS)

    known.doubt("nobody")
    known.doubt("orders")

    assert known.stale(["orders"], now=1000) == ["orders"]
    assert known.by_name("orders") is ORDERS
    known.store([ORDERS], now=1000)
    assert known.stale(["orders"], now=1000) == []


# Partitions are grouped by leader: each is in one group, or has an error

LEADERS = st.dictionaries(st.integers(0, 5), st.sampled_from([NO_LEADER, 0, 1, 2]))
TOPICS = st.dictionaries(
    st.sampled_from("abc"),
    st.tuples(st.sampled_from([ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]), LEADERS),
)
WANTED = st.lists(st.builds(At, st.sampled_from("abcd"), st.integers(0, 6)), unique=True)


@given(TOPICS, WANTED)
def test_each_partition_is_in_its_leader_s_group_or_has_the_reason_why_not(
    topics: dict[str, tuple[ErrorCode, dict[int, int]]], wanted: list[At]
) -> None:
    known = {
        name: TopicMetadata(
            name,
            b"t" * 16,
            error,
            False,
            {one: Partition(one, node, 5, (), ()) for one, node in leaders.items()},
        )
        for name, (error, leaders) in topics.items()
    }

    found = group_by_leader(known, wanted)

    def reason(at: At) -> ErrorCode | int:
        error, leaders = topics.get(at.topic, (ErrorCode.NONE, {}))
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = leaders.get(at.partition)
        if error or leader is None:
            return error or missing
        return ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else leader

    grouped = {at: node for node, some in found.by_node.items() for at in some}
    assert {at: found.errors.get(at, grouped.get(at)) for at in wanted} == {at: reason(at) for at in wanted}
    assert sorted([*grouped, *found.errors]) == sorted(wanted)
    assert all(some == [at for at in wanted if at in some] for some in found.by_node.values())
