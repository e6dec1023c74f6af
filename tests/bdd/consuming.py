"""Consumers of a scenario: real clients that read a number of records and commit, and where they stand."""

from confluent_kafka import Consumer

from tests.bdd.running import Town, eventually
from tests.records import group_offsets


def consumer_of(town: Town, group: str, cluster: str, word: str = "orders") -> Consumer:
    settings = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    settings |= {"group.id": town.name(group), "enable.auto.commit": "false"}
    consumer = Consumer({**town.client(cluster), **settings})
    consumer.subscribe([town.name(word)])
    return consumer


def eat(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def done() -> bool:
        while len(found) < count and (message := consumer.poll(0.2)) is not None:
            if message.error() is None:
                found.append(message.value() or b"")
        return len(found) >= count

    eventually(done, about=f"{count} records")
    consumer.commit(asynchronous=False)
    return found


def place(town: Town, group: str, cluster: str, word: str = "orders") -> dict[int, int]:
    offsets = group_offsets(town.client(cluster), town.name(group))
    return {partition: offset for (topic, partition), offset in offsets.items() if topic == town.name(word)}


def read_before(town: Town, group: str, cluster: str, word: str = "orders") -> list[bytes]:
    """The records before the group's places there. Offsets of the two sides differ, by the marks between
    records."""
    places = place(town, group, cluster, word)
    records = town.records(word, cluster)
    return sorted(one.value or b"" for one in records if one.offset < places.get(one.partition, 0))
