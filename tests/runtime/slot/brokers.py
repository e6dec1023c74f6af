"""Brokers of a lab by hand: killed and started, and what lies on which of them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import NewTopic

from runtime.contract.spec import topic_settings
from tests.records import PATIENCE_S, wait_for
from tests.runtime.slot.world import Side

# Brokers end with the thread that started them, so that thread must outlive a test's event loop.
_HANDS = ThreadPoolExecutor(1)


async def by_hand(act: Callable[[str], None], address: str) -> None:
    await asyncio.get_running_loop().run_in_executor(_HANDS, act, address)


def place(side: Side, topic: str, replicas: list[list[int]], **config: str) -> None:
    side._create(
        [NewTopic(topic, len(replicas), replica_assignment=replicas, config={"retention.ms": "-1", **config})]
    )


def all_but_data_on(side: Side, node: int) -> None:
    """Ledger and coordinators of transactions are where nothing comes between."""
    place(side, "__transaction_state", [[node]] * 4, **{"cleanup.policy": "compact"})
    for topic in topic_settings.at_destination():
        place(side, topic.name, [[node]] * topic.partitions, **dict(topic.config))


def await_in_sync(side: Side, topic: str, wanted: list[int]) -> None:
    admin = side.admin()
    wait_for(
        lambda: (
            [
                one.isrs
                for one in admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
            ]
            == [wanted]
        )
    )
