"""Finds offsets by time: the first record of each partition that is as late as a timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from runtime.audit.ledger import ClusterAccess, open_cluster
from runtime.kafka.protocol.offsets import ListedOffset, TopicPartition
from runtime.kafka.queries import list_offsets


class TimedOffset(NamedTuple):
    """The offset and the timestamp of a record."""

    offset: int
    timestamp_ms: int


async def offsets_by_time(
    reach: ClusterAccess, timestamps_ms: Mapping[tuple[str, int], int], within_s: float
) -> dict[tuple[str, int], TimedOffset | None]:
    """Returns the first record at or after each timestamp, by topic and partition; None if there is none.

    A partition that can't be asked is left out. Raises AuditFailure if the cluster does not answer.
    """
    asked = {TopicPartition(*place): at for place, at in timestamps_ms.items()}
    async with open_cluster(reach, within_s) as cluster:
        answers = await list_offsets(cluster, asked, within=within_s)
    found: dict[tuple[str, int], TimedOffset | None] = {}
    for place, answer in answers.items():
        if isinstance(answer, ListedOffset):
            known = TimedOffset(answer.offset, answer.timestamp) if answer.offset >= 0 else None
            found[place.topic, place.partition] = known
    return found
