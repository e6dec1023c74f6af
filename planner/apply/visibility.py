"""Waits until every broker shows a topic: a broker answers "created" before all brokers know the topic."""

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
    """Returns a check that a topic has all its partitions and that each of them has a leader."""

    def is_visible(name: str, topic: TopicMetadata | None) -> bool:
        if topic is None or topic.error is not None:
            return False
        known = topic.partitions
        return len(known) >= max(1, partitions.get(name, 1)) and all(
            one.leader >= 0 for one in known.values()
        )

    return is_visible


def is_gone(_name: str, topic: TopicMetadata | None) -> bool:
    """Returns whether the broker no longer shows the topic."""
    return topic is None or topic.error is not None


def wait_until_visible(
    context: ApplyContext, topics: Collection[str], is_visible: VisibilityCheck
) -> dict[str, str]:
    """Waits until every live broker passes the check for every topic.

    Returns the topics that did not pass by the deadline, each with a reason. The deadline moves on with every
    topic that passes: a busy cluster is not given up.
    """
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
    """Returns the topics that a broker does not show as wanted, each with a reason."""
    try:
        brokers = context.each_broker()
    except KafkaException:
        return dict.fromkeys(topics, "no broker answers")
    waiting: dict[str, str] = {}
    for broker_id, client in brokers.items():
        known = _metadata(client)
        if known is None:
            continue  # a broker that is down reads the metadata log when it starts again
        for name in topics:
            if not is_visible(name, known.get(name)):
                waiting[name] = f"broker {broker_id} does not show it yet"
    return waiting


def _metadata(client: AdminClient) -> Mapping[str, TopicMetadata] | None:
    try:
        return client.list_topics(timeout=5).topics
    except KafkaException:
        return None
