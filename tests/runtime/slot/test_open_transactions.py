"""A transaction that holds back the source's readers is named, with the command that ends it."""

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.records.job_status import OpenTransaction
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.lab.lab import Lab
from runtime.slot.health.watch import explain, open_transactions
from tests.labs import run_tool
from tests.records import create_topic
from tests.rights import Right, principal
from tests.runtime.slot.world import Side, at_end, copying, in_state, until

Fresh = Callable[[str], str]
READER = [Right("TOPIC", "*", False, ("READ", "DESCRIBE"), "")]


def hang(side: Side, topic: str, transactional_id: str) -> None:
    """Its producer is gone, and the coordinator waits for it for ten minutes."""
    producer = side.producer(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(60)


@pytest.mark.integration
async def test_a_hung_transaction_is_named_and_the_command_that_is_shown_ends_it(
    lab: Lab, sides: dict[str, Side], fresh: Fresh
) -> None:
    orders, hung = copying(sides, fresh), fresh("hung")
    hang(orders.source, orders.topic, hung)
    await orders.write([{"value": b"%d" % number, "partition": 0} for number in range(10)])
    async with orders.running() as slot:
        (status,) = await until(slot, in_state(State.BLOCKED_AT_SOURCE))
        by = status.blocked_by
        assert by is not None
        assert (by.transactional_id, by.start_offset, by.coordinator_state) == (hung, 0, "Ongoing")
        assert (by.timeout_ms, by.unknown) == (600_000, "")
        assert 0 < by.started_ms <= status.since_ms
        for words in (hung, f"producer id {by.producer_id}", "open since offset 0, for", by.abort_command):
            assert words in status.why
        tool, at, bootstrap, *arguments = shlex.split(by.abort_command)
        assert (tool, at) == ("kafka-transactions.sh", "--bootstrap-server")
        assert set(bootstrap.split(",")) <= set(orders.source.bootstrap.split(","))
        await asyncio.to_thread(run_tool, lab, "dc1", "TransactionsCommand", *arguments)
        (after,) = await until(slot, at_end([11]))
        assert after.blocked_by is None


@pytest.mark.integration
async def test_a_missing_right_is_named(lab_sasl: Lab, fresh: Fresh, tmp_path: Path) -> None:
    """The producer, its offset and the command are known all the same: READ on the topic shows them."""
    dc1, topic = lab_sasl.clusters["dc1"], fresh("orders")
    side = Side("dc1", dc1.bootstrap, dc1.client)
    create_topic(dc1.client, topic)
    hang(side, topic, fresh("hung"))
    client = principal(dc1, fresh("reader"), READER, tmp_path)
    client["sasl.password"] = Path(client["sasl.password"]["file"]).read_text()
    place = TopicPartition(topic, 0)
    settings = wire_settings(dc1.bootstrap, {key: str(value) for key, value in client.items()})
    async with await KafkaCluster.open(settings) as cluster:
        found = (await open_transactions(cluster, [place]))[place]
    assert isinstance(found, OpenTransaction), found
    assert (found.transactional_id, found.start_offset) == ("", 0)
    assert "DESCRIBE on TRANSACTIONAL_ID * is missing" in found.unknown
    assert "--command-config client.properties" in found.abort_command
    assert "DESCRIBE on TRANSACTIONAL_ID" in explain(found, 0)


def test_a_transactional_id_is_shown_without_its_control_characters() -> None:
    one = OpenTransaction(7, 0, transactional_id="a\x1b]52;c;x\x07", abort_command="end it")
    assert "\x1b" not in explain(one, 0)
    assert "\x07" not in explain(one, 0)


def test_the_text_has_the_age_of_the_transaction() -> None:
    one = OpenTransaction(7, 3, "id", "Ongoing", started_ms=1_000, timeout_ms=60_000, abort_command="end it")
    assert explain(one, at_ms=96_000) == (
        "a transaction at the source holds its readers back: transactional id 'id', producer id 7, open since"
        " offset 3, for 95 s; its coordinator says Ongoing, timeout 60 s; to abort it: end it"
    )
