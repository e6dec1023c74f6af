"""Partitions are grouped by leader: each is in one group, or has an error."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.errors import ErrorCode
from runtime.kafka.leaders import group_by_leader
from runtime.kafka.protocol.metadata import NO_LEADER, Partition, TopicMetadata
from runtime.kafka.protocol.offsets import TopicPartition as At

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
