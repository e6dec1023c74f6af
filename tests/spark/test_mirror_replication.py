"""Mirror topics that a running job creates have the replication of their flow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from runtime.contract.spec.cluster import ClusterSpec
from runtime.lab.lab import Lab
from tests.records import PATIENCE_S, create_topic, read, wait_for, write
from tests.spark.job import flow_of, spec_of, start_job

pytestmark = [pytest.mark.spark, pytest.mark.long]


def replicas(client: dict[str, Any], topic: str) -> list[int]:
    """Returns the number of replicas of each partition; nothing while the topic is not there."""
    topics = AdminClient(client).list_topics(timeout=PATIENCE_S).topics
    return [len(one.replicas) for one in topics[topic].partitions.values()] if topic in topics else []


def test_a_mirror_has_the_replication_of_its_flow(
    lab: Lab, lab_three: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    source, three = lab.clusters["dc1"].client, lab_three.clusters["dc1"].client
    topic = fresh("orders")
    create_topic(source, topic, 2, config={"retention.ms": "-1"})
    write(source, topic, [b"a", b"b", b"c"])
    flow = flow_of(fresh("flow"), [topic], destination="three", replication=2)
    spec = spec_of(lab, fresh("job"), [flow], destination="three")
    clusters = {"dc1": spec.clusters["dc1"], "three": ClusterSpec(bootstrap=three["bootstrap.servers"])}

    with start_job(replace(spec, clusters=clusters), tmp_path):
        wait_for(lambda: replicas(three, topic) == [2, 2])
        wait_for(lambda: sorted(one.value or b"" for one in read(three, topic)) == [b"a", b"b", b"c"])
