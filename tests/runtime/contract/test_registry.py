"""What a job registers is what the planner would have registered."""

import pytest

from planner.diff.record import acl_entry as planned_acl
from planner.diff.record import announced, topic_entry
from planner.model.desired import DesiredAcl, DesiredTopic, MirroredBy, QuarantineOf
from planner.state.internal_topics import decode_owned, registry_key
from runtime.contract.records import registry
from runtime.contract.records.registry import OwnershipRecord
from runtime.contract.spec.acls import AclRule, flow_origin
from runtime.contract.spec.transform import quarantine_origin
from runtime.driver.topics.admin import acl_entry, acl_key, owned_acl, topic_key, topic_spec

RULE = AclRule("dc2", "TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")


@pytest.mark.parametrize("replication", [None, 3])
@pytest.mark.parametrize(
    ("origin", "made_by", "source"),
    [
        (flow_origin("f"), MirroredBy("f", "dc1", "orders"), ("dc1", "orders")),
        (quarantine_origin("f"), QuarantineOf("f", "mirror"), None),
    ],
)
def test_the_planner_reads_it_as_its_own(
    origin: str,
    made_by: MirroredBy | QuarantineOf,
    source: tuple[str, str] | None,
    replication: int | None,
):
    config = {"retention.ms": "5", "cleanup.policy": "delete"}
    spec = topic_spec(
        source=source, topic_id=bytes(range(16)), partitions=3, replication=replication, config=config
    )
    entry = OwnershipRecord(topology="t", spec=spec, origin=origin, created=True, at_ms=0)
    written = registry.encode(entry)
    desired = DesiredTopic("dc2", "orders", made_by, partitions=3, replication=replication, config=config)
    planned = topic_entry(desired, "t", "AAECAwQFBgcICQoLDA0ODw", created=True)
    key = topic_key("dc2", "orders")
    assert decode_owned(key, written) == planned
    assert registry_key(planned.address) == key


@pytest.mark.parametrize("before", [True, False])
def test_the_planner_reads_a_rule_as_its_own(before: bool) -> None:
    written = acl_entry(RULE, "t", "flow.f", 0, announced=before)
    planned = planned_acl(DesiredAcl(RULE, MirroredBy("f", "dc1", "orders")), "t", created=True)
    assert decode_owned(acl_key(RULE), written) == (announced(planned) if before else planned)
    assert registry_key(planned.address) == acl_key(RULE)
    owned = owned_acl("dc2", acl_key(RULE), written)
    assert owned is not None
    rule, entry = owned
    assert (rule, entry.topology, entry.origin) == (RULE, "t", "flow.f")


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        (b"acl.dc2.allow.User:app.READ.topic.other", b"", b""),  # the entry of another rule
        (b"topic.dc2.orders", b"", b""),
        (None, b'"created":true', b'"created":false'),
        (None, b'"v":1', b'"v":2'),
        (None, b'"ALLOW"', b'"MAYBE"'),
        (None, b"{", b"["),
    ],
)
def test_what_is_no_rule_of_a_topology_is_none(key: bytes | None, old: bytes, new: bytes) -> None:
    written = acl_entry(RULE, "t", "flow.f", 0, announced=False)
    assert owned_acl("dc2", key or acl_key(RULE), written.replace(old, new) if old else written) is None
