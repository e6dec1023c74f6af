"""A broker answers "created" before every broker knows the topic: ask each one until it does."""

import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata

from planner.apply.context import ApplyContext

PROPAGATION_SECONDS = 120.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

Seen = Callable[[str, TopicMetadata | None], bool]


def led(partitions: Mapping[str, int]) -> Seen:
    """The topic is there with all its partitions, and each of them has a leader."""

    def seen(name: str, topic: TopicMetadata | None) -> bool:
        if topic is None or topic.error is not None:
            return False
        known = topic.partitions
        return len(known) >= max(1, partitions.get(name, 1)) and all(
            one.leader >= 0 for one in known.values()
        )

    return seen


def gone(_name: str, topic: TopicMetadata | None) -> bool:
    return topic is None or topic.error is not None


def await_everywhere(hands: ApplyContext, topics: Collection[str], seen: Seen) -> dict[str, str]:
    """Wait until every live broker sees every topic so; by topic, who does not even at the deadline, which
    moves on with every topic that appears: a cluster with much to do is not given up."""
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    left = len(topics)
    while True:
        waiting = _not_yet(hands, topics, seen)
        if not waiting or time.monotonic() > deadline or hands.guard.barred() is not None:
            return waiting
        if len(waiting) < left:
            left = len(waiting)
            deadline = time.monotonic() + PROPAGATION_SECONDS
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _not_yet(hands: ApplyContext, topics: Collection[str], seen: Seen) -> dict[str, str]:
    try:
        brokers = hands.each_broker()
    except KafkaException:
        return dict.fromkeys(topics, "no broker answers")
    waiting: dict[str, str] = {}
    for broker_id, client in brokers.items():
        known = _metadata(client)
        if known is None:
            continue  # a broker that is down will read the metadata log when it comes back
        for name in topics:
            if not seen(name, known.get(name)):
                waiting[name] = f"broker {broker_id} does not show it yet"
    return waiting


def _metadata(client: AdminClient) -> Mapping[str, TopicMetadata] | None:
    try:
        return client.list_topics(timeout=5).topics
    except KafkaException:
        return None
