"""Whose a producer id is, and where what it wrote came from (R5)."""

import pytest

from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.provenance import (
    ClusterTopic,
    FlowProducer,
    decode_producer,
    decode_producer_key,
    encode_producer,
    encode_producer_key,
)
from runtime.contract.spec.jobspec import MatchRule, RenameRule, TableRule, TemplateRule


@pytest.mark.parametrize(
    ("rule", "written", "home"),
    [
        (TemplateRule(text="{topic}"), "orders", ClusterTopic("id-1", "orders")),
        (TemplateRule(text="{source}.{topic}"), "dc1.orders", ClusterTopic("id-1", "orders")),
        (TemplateRule(text="{source}.{topic}"), "orders", None),
        (MatchRule(match="a-(.*)", to="b-\\1"), "b-x", ClusterTopic("id-1", "a-x")),
    ],
)
def test_what_a_flow_wrote_leads_back_to_where_it_was_read(
    rule: RenameRule, written: str, home: ClusterTopic | None
) -> None:
    assert FlowProducer("flow", "dc1", "id-1", rule).home(written) == home


def test_a_way_home_undoes_the_rule_of_its_flow() -> None:
    producer = FlowProducer("back", "dc2", "id-2", TemplateRule(text="{source}.{topic}"), undoes="dc1")
    assert producer.home("orders") == ClusterTopic("id-2", "dc1.orders")
    assert decode_producer(encode_producer(producer)) == producer


def test_one_that_is_at_home_in_one_topic_alone() -> None:
    rule = TableRule(names={"orders": "dc1.orders"})
    producer = FlowProducer("flow", "dc1", "id-1", rule, only="dc1.orders")
    assert producer.home("dc1.orders") == ClusterTopic("id-1", "orders")
    assert producer.home("aside") is None
    assert decode_producer(encode_producer(producer)) == producer


def test_it_comes_back_as_it_was_written() -> None:
    producer = FlowProducer("flow", "dc1", "id-1", TemplateRule(text="{topic}.replica"))
    assert decode_producer(encode_producer(producer)) == producer
    assert decode_producer_key(encode_producer_key(4_711)) == 4_711


@pytest.mark.parametrize("value", [b"", b"\x02{}", b"\x01{}"])
def test_what_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_producer(value)


@pytest.mark.parametrize("key", [None, b"[1]", b'["producer","x"]', b"nonsense"])
def test_so_is_a_key(key: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode_producer_key(key)
