"""A broker answers "created" before every broker knows the topic: ask each one until it does."""

import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata

from planner.apply.context import ApplyContext

PROPAGATION_SECONDS = 120.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

VisibilityCheck = Callable[[str, TopicMetadata | None], bool]


def has_leaders(partitions: Mapping[str, int]) -> VisibilityCheck:
    """The topic is there with all its partitions, and each of them has a leader."""

    def is_visible(name: str, topic: TopicMetadata | None) -> bool:
        if topic is None or topic.error is not None:
            return False
        known = topic.partitions
        return len(known) >= max(1, partitions.get(name, 1)) and all(
            one.leader >= 0 for one in known.values()
        )

    return is_visible


def is_gone(_name: str, topic: TopicMetadata | None) -> bool:
    return topic is None or topic.error is not None


def wait_until_visible(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    """Wait until every live broker sees every topic so; by topic, who does not even at the deadline, which
    moves on with every topic that appears: a cluster with much to do is not given up."""
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    left = len(topics)
    while True:
        waiting = _invisible_topics(context, topics, is_visible)
        if not waiting or time.monotonic() > deadline or context.guard.stop_reason() is not None:
            return waiting
        if len(waiting) < left:
            left = len(waiting)
            deadline = time.monotonic() + PROPAGATION_SECONDS
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _invisible_topics(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    try:
        brokers = context.each_broker()
    except KafkaException:
        return dict.fromkeys(topics, "no broker answers")
    waiting: dict[str, str] = {}
    for broker_id, client in brokers.items():
        known = _metadata(client)
        if known is None:
            continue  # a broker that is down will read the metadata log when it comes back
        for name in topics:
            if not is_visible(name, known.get(name)):
                waiting[name] = f"broker {broker_id} does not show it yet"
    return waiting


def _metadata(client: AdminClient) -> Mapping[str, TopicMetadata] | None:
    try:
        return client.list_topics(timeout=5).topics
    except KafkaException:
        return None
