"""Which features the API versions of brokers say that a cluster lacks."""

import pytest

from planner.observe.brokers import Versions
from planner.observe.doctor import BROKER_FEATURES, lacking, release_of
from runtime.kafka.protocol.request import Api

# The versions of real brokers, of the APIs that tell releases apart: see docs/compatibility.md.
KAFKA_2_4 = {
    Api.PRODUCE: 8,
    Api.FETCH: 11,
    Api.LIST_OFFSETS: 5,
    Api.METADATA: 9,
    Api.OFFSET_COMMIT: 8,
    Api.OFFSET_FETCH: 6,
    Api.FIND_COORDINATOR: 3,
    Api.LIST_GROUPS: 3,
    Api.INIT_PRODUCER_ID: 2,
    Api.OFFSET_FOR_LEADER_EPOCH: 3,
    Api.ADD_PARTITIONS_TO_TXN: 1,
    Api.END_TXN: 1,
    Api.ALTER_PARTITION_REASSIGNMENTS: 0,
}
KAFKA_2_5 = KAFKA_2_4 | {Api.INIT_PRODUCER_ID: 3, Api.OFFSET_FETCH: 7}
NEWEST = dict.fromkeys(Api, 99)


def broker(versions: dict[Api, int], name: str = "1 (a:9092)", oldest: int = 0) -> dict[str, Versions]:
    return {name: {api: (oldest, newest) for api, newest in versions.items()}}


@pytest.mark.parametrize(
    ("versions", "required"),
    [(KAFKA_2_4, ["copy to, exactly once"]), (KAFKA_2_5, []), (NEWEST, [])],
)
def test_what_a_flow_needs_and_a_release_lacks(versions: dict[Api, int], required: list[str]) -> None:
    found = lacking(broker(versions))
    assert [one.name for one in found if one.required] == required


def test_a_new_release_lacks_nothing_and_an_old_one_is_named_with_the_api() -> None:
    assert lacking(broker(NEWEST)) == ()
    found = {one.name: one for one in lacking(broker(NEWEST) | broker(KAFKA_2_5, "2 (b:9092)"))}
    assert found["topic ids"].broker == "2 (b:9092)"
    assert found["topic ids"].why == "Metadata is offered in versions 0 to 9, needed is 10 or higher"
    assert found["names of open transactions"].why == "DescribeProducers is not offered"


def test_a_release_that_dropped_our_versions_is_named_too() -> None:
    newer = lacking(broker(dict.fromkeys(Api, 99), oldest=50))
    assert {one.name for one in newer if one.required} == {
        feature.name for feature in BROKER_FEATURES if feature.required
    }
    assert newer[0].why.endswith("needed is 9 to 12")


@pytest.mark.parametrize(
    ("versions", "release"),
    [({}, "older than 2.4"), (KAFKA_2_4, "2.4"), (KAFKA_2_5, "2.5"), (NEWEST, "4.4")],
)
def test_the_release_is_told_from_the_versions(versions: dict[Api, int], release: str) -> None:
    assert release_of(broker(versions)["1 (a:9092)"]) == release
