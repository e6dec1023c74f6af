"""Keeps the quarantine topics of a flow at the destination, one beside each mirror.

A topic that is missing is created, also after it was deleted. The job changes no settings of it later: an
operator or the topology may have decided about its records. Each change first confirms the driver's
leadership (R10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from runtime.contract.records.control import AssignedQuarantine
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.topic_settings import TopicSettings, supported
from runtime.contract.spec.transform import quarantine_origin, quarantine_settings, quarantine_topic
from runtime.driver.clusters import DriverClusters, await_leaders
from runtime.driver.leadership import Leadership
from runtime.driver.topics.admin import (
    register_topics,
)
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.changes import BROKERS_DEFAULT, NewTopic
from runtime.slot.log import log_event

_REREAD_S = 60.0
_DEFAULT_LARGEST = "1048588"


class QuarantineTopics:
    """These are the quarantine topics of one flow, with their settings.

    `failed` maps those that could not be created to the reason.
    """

    def __init__(
        self, flow: FlowSpec, topology: str, clusters: DriverClusters, leadership: Leadership
    ) -> None:
        self._flow = flow
        self._topology = topology
        self._clusters = clusters
        self._leadership = leadership
        self._settings: dict[str, TopicSettings] = {}
        self._read_at = -_REREAD_S
        self.failed: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        """Whether the flow quarantines bad records."""
        return self._flow.transform is not None and self._flow.transform.quarantines

    def limits(self, mirror: str) -> AssignedQuarantine | None:
        """Returns the quarantine topic of a mirror with its limits; None while they are not known."""
        topic = quarantine_topic(mirror)
        settings = self._settings.get(topic)
        if settings is None or topic in self.failed:
            return None
        largest = settings.effective("max.message.bytes") or _DEFAULT_LARGEST
        return AssignedQuarantine(topic, int(largest), int(settings.effective("min.insync.replicas") or 1))

    async def update(
        self, partitions: Mapping[str, int], mirrors: Mapping[str, TopicSettings], known: frozenset[str]
    ) -> None:
        """Creates the topics that are missing, and reads the settings of all.

        `partitions` are those of each mirror, `mirrors` are the settings of the mirrors, and `known` names
        all settings that the destination has. Raises WireError, DriverFenced.
        """
        cluster = await self._clusters.cluster(self._flow.destination)
        topics = await cluster.topics([quarantine_topic(mirror) for mirror in partitions], fresh=True)
        missing = [
            NewTopic(
                name,
                count,
                self._flow.replication or BROKERS_DEFAULT,
                supported(quarantine_settings(mirrors[mirror].effective("max.message.bytes")), known),
            )
            for mirror, count in partitions.items()
            if mirror in mirrors
            and topics[name := quarantine_topic(mirror)].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        self.failed = await self._create(missing) if missing else {}
        now = asyncio.get_running_loop().time()
        names = [name for name in topics if name not in self.failed]
        if now - self._read_at < _REREAD_S:
            names = [name for name in names if name not in self._settings]
        else:
            self._read_at = now
        if names:
            self._settings |= await (await self._clusters.admin(self._flow.destination)).settings(names)

    async def _create(self, missing: Sequence[NewTopic]) -> dict[str, str]:
        """Creates topics and returns the refusals."""
        admin = await self._clusters.admin(self._flow.destination)
        await self._leadership.ensure()
        failed = await admin.create(missing)
        made = [one for one in missing if one.name not in failed]
        cluster = await self._clusters.cluster(self._flow.destination)
        await await_leaders(cluster, {one.name: one.partitions for one in made})
        await register_topics(cluster, self._flow, self._topology, quarantine_origin(self._flow.name), made)
        for one in made:
            self._settings.pop(one.name, None)
        log_event(
            "quarantine_created",
            key=self._flow.name,
            flow=self._flow.name,
            topics=", ".join(one.name for one in made),
            error="; ".join(f"{name}: {why}" for name, why in failed.items()) or None,
        )
        return failed
