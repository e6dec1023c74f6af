"""Leadership that moves while nobody dies: of the partitions, and with them of the coordinators."""

from __future__ import annotations

import random
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from planner.kafka import ClusterFailure
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import WireError
from tests.leaders import prefer

_WITHIN_S = 60


def move_leaders(client: Mapping[str, str], dice: random.Random) -> bool:
    """Every partition of several replicas prefers another of them, which then leads; whether there is one."""
    admin = AdminClient({**client, "log_level": 0})
    wanted = {
        TopicPartition(name, number): _turned(known.replicas, dice)
        for name, topic in sorted(admin.list_topics(timeout=_WITHIN_S).topics.items())
        for number, known in sorted(topic.partitions.items())
        if len(known.replicas) > 1
    }
    if not wanted:
        return False
    try:
        # One that can't lead now, as it is not in sync, is left as it is.
        prefer(client["bootstrap.servers"], wanted, _WITHIN_S)
    except (ClusterFailure, WireError):  # a controller that is just elected: a moment later
        return False
    return True


def _turned(replicas: list[int], dice: random.Random) -> list[int]:
    by = dice.randrange(1, len(replicas))
    return replicas[by:] + replicas[:by]
