"""The room on the disks of brokers: what it is compared with, and where it is not known."""

from planner.observe.disk_space import BrokerSpace, too_little, unknown_space

BROKERS = [
    BrokerSpace(1, 300_000_000),
    BrokerSpace(2, 299_999_999),
    BrokerSpace(3, None, "no right to DESCRIBE the cluster"),
    BrokerSpace(4, None, "no right to DESCRIBE the cluster"),
    BrokerSpace(5, None, "Kafka tells it since version 3.3"),
]


def test_the_disks_with_too_little_room_are_named_with_the_figures() -> None:
    assert too_little("dc2", BROKERS, 300_000_000) == [
        "broker 2 of dc2 has 300 MB left on a disk, and the drill needs 300 MB"
    ]
    assert too_little("dc2", BROKERS[:1], 300_000_000) == []


def test_brokers_that_do_not_tell_are_named_by_the_reason() -> None:
    assert unknown_space("dc2", BROKERS) == [
        "the room on the disks of dc2 was not checked for broker 3, 4: no right to DESCRIBE the cluster",
        "the room on the disks of dc2 was not checked for broker 5: Kafka tells it since version 3.3",
    ]
