"""Positions of another tool on real brokers: what it stored, what it copied, and whether it still runs."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from planner.model.diagnostic import ExitCode, Failure
from planner.workflows import ImportedCopy, TakeOver, import_files
from runtime.contract.spec.flow import AtOffsets
from runtime.lab.lab import Lab
from tests.records import create_topic, wait_for

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
LONG_AGO = 1_700_000_000_000


def put(lab: Lab, cluster: str, topic: str, begin: int, end: int, partition: int = 0) -> None:
    """Records that are the same at whichever cluster they are written."""
    producer = Producer(dict(lab.clusters[cluster].client))
    for at in range(begin, end):
        producer.produce(topic, b"%d" % at, partition=partition, timestamp=LONG_AGO + at)
    assert producer.flush(60) == 0


def store(lab: Lab, topic: str, alias: str, offsets: Mapping[tuple[str, int], int | None]) -> None:
    """Positions as Connect stores them; None resets one."""
    producer = Producer(dict(lab.clusters["dc2"].client))
    for (name, partition), offset in offsets.items():
        place = {"cluster": alias, "partition": partition, "topic": name}
        key = json.dumps(["MirrorSourceConnector", place], separators=(",", ":"))
        producer.produce(topic, key=key, value=None if offset is None else json.dumps({"offset": offset}))
    assert producer.flush(60) == 0


class Mirrored:
    """A topic of three partitions at dc1 and its mirror at dc2, with a MirrorMaker 2 file."""

    def __init__(self, lab: Lab, fresh: Fresh, folder: Path) -> None:
        self.lab = lab
        self.alias, self.topic, self.offsets = fresh("a"), fresh("orders"), fresh("offsets")
        self.mirror = f"{self.alias}.{self.topic}"
        self.file = folder / "mm2.properties"
        self.file.write_text(
            f"clusters = {self.alias}, b\n{self.alias}.bootstrap.servers = {lab.clusters['dc1'].bootstrap}\n"
            f"b.bootstrap.servers = {lab.clusters['dc2'].bootstrap}\n{self.alias}->b.enabled = true\n"
            f"{self.alias}->b.topics = {self.topic}\noffset.storage.topic = {self.offsets}\n"
        )
        create_topic(lab.clusters["dc1"].client, self.topic, 3, config={"retention.ms": "-1"})
        create_topic(lab.clusters["dc2"].client, self.mirror, 3, config={"retention.ms": "-1"})

    def stores(self, offsets: Mapping[int, int | None]) -> None:
        there = AdminClient(dict(self.lab.clusters["dc2"].client))
        if self.offsets not in there.list_topics(timeout=60).topics:
            config = {"cleanup.policy": "compact"}
            create_topic(self.lab.clusters["dc2"].client, self.offsets, 2, config=config)
        places = {(self.topic, partition): offset for partition, offset in offsets.items()}
        store(self.lab, self.offsets, self.alias, places)

    def take_over(self) -> ImportedCopy:
        return import_files("mm2", [self.file], take_over=TakeOver())

    def begun(self) -> tuple[dict[int, int], str]:
        """Where the flow begins, and what is said."""
        copy = self.take_over()
        (flow,) = copy.topology.flows.values()
        assert isinstance(flow.start, AtOffsets)
        return dict(flow.start.offsets[self.topic]), "\n".join(map(str, copy.diagnostics))


@pytest.fixture
def mirrored(lab: Lab, fresh: Fresh, tmp_path: Path) -> Mirrored:
    return Mirrored(lab, fresh, tmp_path)


def test_each_partition_begins_behind_what_was_copied(lab: Lab, mirrored: Mirrored) -> None:
    """Partition 0 as it is stored, 1 further than that, 2 was reset and copied all the same."""
    for partition, copied in enumerate((40, 60, 30)):
        put(lab, "dc1", mirrored.topic, 0, 100, partition)
        put(lab, "dc2", mirrored.mirror, 0, copied, partition)
    mirrored.stores({0: 20, 1: 49, 2: 29})
    mirrored.stores({0: 39, 2: None})
    offsets, said = mirrored.begun()
    assert offsets == {0: 40, 1: 60, 2: 30}
    assert f"{mirrored.topic}-1 (50 stored, 60 copied), {mirrored.topic}-2 (none stored, 30 copied)" in said


def test_a_missing_offsets_topic_is_named(mirrored: Mirrored) -> None:
    with pytest.raises(Failure, match=f"there is no topic {mirrored.offsets}") as missing:
        mirrored.take_over()
    assert missing.value.exit_code is ExitCode.ERROR


def test_replicator_by_the_offsets_of_its_group(lab: Lab, fresh: Fresh, tmp_path: Path) -> None:
    topic, group = fresh("orders"), fresh("replicator")
    for cluster in ("dc1", "dc2"):
        create_topic(lab.clusters[cluster].client, topic, 1, config={"retention.ms": "-1"})
        put(lab, cluster, topic, 0, 80 if cluster == "dc1" else 55)
    file = tmp_path / "connector.json"
    file.write_text(
        json.dumps(
            {
                "name": group,
                "config": {
                    "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
                    "src.kafka.bootstrap.servers": lab.clusters["dc1"].bootstrap,
                    "dest.kafka.bootstrap.servers": lab.clusters["dc2"].bootstrap,
                    "topic.whitelist": topic,
                },
            }
        )
    )
    consumer = Consumer({**lab.clusters["dc1"].client, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.1) is not None or consumer.assignment())
    consumer.commit(offsets=[TopicPartition(topic, 0, 50)], asynchronous=False)
    take_over = TakeOver(groups=(group,))
    with pytest.raises(Failure, match=f"Replicator still runs: group {group} at .* has members") as refused:
        import_files("replicator", [file], take_over=take_over)
    assert refused.value.exit_code is ExitCode.REFUSED
    consumer.close()
    copy = import_files("replicator", [file], take_over=take_over)
    assert copy.topology.flows[group].start == AtOffsets({topic: {0: 55}})
