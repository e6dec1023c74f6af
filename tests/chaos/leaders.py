"""Leadership that moves while nobody dies: of the partitions, and with them of the coordinators."""

from __future__ import annotations

import random
from collections.abc import Mapping

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from planner.kafka import Endpoint, raw_admin

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
    with raw_admin(Endpoint("chaos", client["bootstrap.servers"]), _WITHIN_S * 1_000) as raw:
        raw.alter_partition_reassignments(wanted)
    # One that can't lead now, as it is not in sync, is left as it is.
    admin.elect_leaders(ElectionType.PREFERRED, [*wanted], request_timeout=_WITHIN_S).result(_WITHIN_S)
    return True


def _turned(replicas: list[int], dice: random.Random) -> list[int]:
    by = dice.randrange(1, len(replicas))
    return replicas[by:] + replicas[:by]
