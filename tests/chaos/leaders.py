"""Leadership that moves while nobody dies: of the partitions, and with them of the coordinators."""

from __future__ import annotations

import random
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from kafka import TopicPartition

from planner.kafka import Endpoint, RawFailure, raw_admin

_WITHIN_S = 60
_PREFERRED = 0


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
        with raw_admin(Endpoint("chaos", client["bootstrap.servers"]), _WITHIN_S * 1_000) as raw:
            raw.alter_partition_reassignments(wanted)
            # One that can't lead now, as it is not in sync, is left as it is.
            raw.elect_leaders(_PREFERRED, raise_errors=False)
    except RawFailure:  # a controller that is just elected: a moment later
        return False
    return True


def _turned(replicas: list[int], dice: random.Random) -> list[int]:
    by = dice.randrange(1, len(replicas))
    return replicas[by:] + replicas[:by]
