"""Records for trying things: as many as asked for, where they were asked for."""

import json

import pytest
from confluent_kafka import KafkaError

from runtime.lab.files import LabError
from runtime.lab.load import KEYS, LoadGenerator, OutageReporter, targets_of
from tests.records import create_topic, read


def test_a_target_is_a_cluster_and_a_topic():
    assert [one.name for one in targets_of(["dc1:a", "dc2:b.c"])] == ["dc1:a", "dc2:b.c"]
    with pytest.raises(LabError, match="names no topic"):
        targets_of(["dc1"])


@pytest.mark.integration
def test_numbered_records_arrive_at_both(lab, fresh):
    topic = fresh("load")
    for cluster in ("dc1", "dc2"):
        create_topic(lab.clusters[cluster].client, topic, 1)
    targets = targets_of([f"dc1:{topic}", f"dc2:{topic}"])
    LoadGenerator(lab, targets, rate=200.0).run(seconds=0.5)
    for target in targets:
        records = read(lab.clusters[target.cluster].client, topic)
        values = [json.loads(record.value or b"") for record in records]
        assert [value["number"] for value in values] == list(range(100))
        assert {value["from"] for value in values} == {target.cluster}
        assert target.written == 100
        assert records[0].key == b"key-0"
        assert KEYS == 100


@pytest.mark.integration
def test_what_is_not_there_is_said(lab):
    with pytest.raises(LabError, match="no cluster 'dc9'"):
        LoadGenerator(lab, targets_of(["dc9:a"]), rate=1.0)
    with pytest.raises(LabError, match="no topic 'nowhere'"):
        LoadGenerator(lab, targets_of(["dc1:nowhere"]), rate=1.0)


def test_an_outage_is_reported_once_at_its_begin_and_once_at_its_end():
    lines: list[str] = []
    outages = OutageReporter(lines.append)
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    for _ in range(3):
        outages.failed("dc1", down)
    outages.failed("dc2", KafkaError(KafkaError._TRANSPORT))
    for _ in range(3):
        outages.acknowledged("dc1")
    assert lines == ["dc1 does not answer; each record is tried again for 20 s", "dc1 answers again"]
