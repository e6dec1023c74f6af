"""Reads how long sources keep records by time: from it follows when a lagging flow begins to lose some."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.queries import topic_configs

AGAIN_S = 300.0  # settings change rarely, and a reading comes every two seconds
_RETENTION, _POLICY = "retention.ms", "cleanup.policy"
_DELETES = "delete"


class RetentionReader:
    """Keeps the retention of one cluster's topics.

    Topics that were not asked about yet are read at once, the others every `AGAIN_S`. A topic whose settings
    may not be read is left out, and is asked about again then.
    """

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._known: dict[str, int | None] = {}
        self._read_at: float | None = None

    async def read(
        self, cluster: KafkaCluster, topics: Iterable[str], within_s: float
    ) -> Mapping[str, int | None]:
        """Returns the retention in ms by topic, None where nothing is deleted by time.

        It raises nothing: where the settings cannot be read in time, what was known before stays.
        """
        wanted = set(topics)
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= AGAIN_S:
            self._read_at = now
            self._asked.clear()
        missing = sorted(wanted - self._asked)
        try:
            async with asyncio.timeout(within_s):
                async for topic in topic_configs(cluster, missing, (_RETENTION, _POLICY)):
                    self._known.pop(topic.name, None)
                    config = {entry.key: entry.value or "" for entry in topic.entries}
                    if topic.error is ErrorCode.NONE and _RETENTION in config:
                        self._known[topic.name] = kept_ms(config)
        except (WireError, TimeoutError):
            pass
        self._asked |= set(missing)
        return {topic: self._known[topic] for topic in wanted if topic in self._known}


def kept_ms(config: Mapping[str, str]) -> int | None:
    """Returns the retention of a topic with these settings; None where nothing is deleted by time."""
    retention = config[_RETENTION]
    if _DELETES not in config.get(_POLICY, _DELETES).split(",") or retention.startswith("-"):
        return None
    return int(retention)
