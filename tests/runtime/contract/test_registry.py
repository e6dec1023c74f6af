"""What a job registers is what the planner would have registered."""

from planner.diff.record import topic_entry
from planner.model.desired import DesiredTopic, MirroredBy
from planner.state.log import decode_owned, registry_key
from runtime.driver.topics.mirrors import mirror_entry, mirror_key


def test_the_planner_reads_it_as_its_own():
    config = {"retention.ms": "5", "cleanup.policy": "delete"}
    written = mirror_entry(
        topology="t",
        flow="f",
        source=("dc1", "orders"),
        topic_id=bytes(range(16)),
        partitions=3,
        config=config,
        at_ms=0,
    )
    origin = MirroredBy("f", "dc1", "orders")
    desired = DesiredTopic(cluster="dc2", name="orders", origin=origin, partitions=3, config=config)
    planned = topic_entry(desired, "t", "AAECAwQFBgcICQoLDA0ODw", created=True)
    key = mirror_key("dc2", "orders")
    assert decode_owned(key, written) == planned
    assert registry_key(planned.address) == key
