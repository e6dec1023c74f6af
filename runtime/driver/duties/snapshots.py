"""Keeps snapshots of a flow's topics beside its raw files: configs, partitions, ACLs and group offsets.

A snapshot is taken before a round reads where its partitions end. So the files of that round hold every
record that a group had consumed by then. What can't be read is named in the snapshot; it never stops the
flow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.manifest import Snapshot, SnapshotAcl, SnapshotOffset, SnapshotTopic
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.driver.clusters import DriverClusters
from runtime.files.manifest import EndpointUnavailable, ManifestTaken
from runtime.files.snapshots import SnapshotFolder, readable
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.queries import committed_by, list_groups, topic_configs
from runtime.kafka.timing import now_ms
from runtime.slot.log import log_event


class SnapshotDuty:
    """Takes the snapshots of one flow into raw files. Flows into files of another format have none."""

    def __init__(
        self, spec: FlowSpec, files: FilesSpec, clusters: DriverClusters, own_groups: Collection[str]
    ) -> None:
        self.note = ""  # why the last snapshot could not be taken, or lacks something
        flow = self._flow = spec.name
        self._source = spec.source
        self._is_backup = files.format == "raw"
        self._folder = SnapshotFolder(files.folder, flow, files.client)
        self._every_s = files.snapshots_ms / 1000
        self._clusters = clusters
        self._own_groups = own_groups
        self._taken_at: float | None = None

    async def run(
        self, cluster: KafkaCluster, generation: int, selects: Callable[[Iterable[str]], Collection[str]]
    ) -> None:
        """Takes a snapshot where one is due. A failure is noted, and tried again in the next round."""
        now = time.monotonic()
        waits = self._taken_at is not None and now - self._taken_at < self._every_s
        if waits or not self._is_backup:
            return
        try:
            taken = await asyncio.to_thread(readable, await self._take(cluster, generation, selects))
            written = await asyncio.to_thread(self._folder.add, taken)
            misdated = await asyncio.to_thread(self._folder.misdated, taken.at_ms)
        except (WireError, ClientSettingsError, EndpointUnavailable, ManifestTaken) as error:
            self.note = f"no snapshot of its topics: {error}"
            return
        self._taken_at = now
        unread = "; ".join(f"{what}: {why}" for what, why in sorted(taken.unread.items()))
        lacks = f"the snapshot of its topics lacks {unread}" if unread else ""
        wrong = (
            f"the snapshot {misdated} is dated in the future of this machine's clock, and so are those after"
            " it: set the clock, or move the snapshots with wrong dates out of the folder"
            if misdated is not None
            else ""
        )
        self.note = "; ".join(filter(None, [lacks, wrong]))
        if written:
            log_event(
                "snapshot_written",
                key=self._flow,
                flow=self._flow,
                topics=len(taken.topics),
                acls=len(taken.acls or ()),
                offsets=len(taken.offsets),
                unread=unread or None,
            )

    async def _take(
        self, cluster: KafkaCluster, generation: int, selects: Callable[[Iterable[str]], Collection[str]]
    ) -> Snapshot:
        at_ms = now_ms()
        listing = await self._clusters.listing(self._source)
        existing = {name: metadata for name, metadata in listing.items() if metadata.error is ErrorCode.NONE}
        topics = {name: existing[name] for name in sorted(selects(existing))}
        unread: dict[str, str] = {}
        configs = await _configs(cluster, list(topics), unread)
        acls = await self._acls(topics, unread)
        offsets = await self._offsets(cluster, topics, unread)
        return Snapshot(
            flow=self._flow,
            cluster_id=cluster.cluster_id,
            generation=generation,
            at_ms=at_ms,
            topics=[_topic(metadata, configs.get(name, {})) for name, metadata in topics.items()],
            acls=acls,
            offsets=offsets,
            unread=unread,
        )

    async def _acls(self, topics: Collection[str], unread: dict[str, str]) -> list[SnapshotAcl] | None:
        """Returns the rules that apply to any of the topics; None where the cluster has no authorizer."""
        try:
            rules = await self._clusters.topic_rules(self._source)
        except WireError as error:
            unread["acls"] = str(error)
            return None
        if rules is None:
            return None
        return sorted(
            SnapshotAcl(
                resource=rule.resource,
                pattern=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission=rule.permission,
            )
            for rule in rules
            if any(rule.covers(topic) for topic in topics)
        )

    async def _offsets(
        self, cluster: KafkaCluster, topics: Collection[str], unread: dict[str, str]
    ) -> list[SnapshotOffset]:
        """Returns what groups committed on the topics. Start offsets of share groups are not backed up.

        `unread` names these groups, and what can't be read. Raises WireError.
        """
        listed = await list_groups(cluster)
        names, share = sorted(set(listed.groups) - set(self._own_groups)), sorted(listed.share)
        read, starts = await committed_by(cluster, names), await committed_by(cluster, share, share=share)
        left_out = [
            group
            for group in share
            if group in starts.failed or any(at.topic in topics for at in starts.offsets.get(group, ()))
        ]
        if left_out:
            more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
            unread["share groups"] = (
                f"{', '.join(left_out[:5])}{more} (their start offsets are not backed up)"
            )
        failed = [f"{group}: {why}" for group, why in sorted(read.failed.items())]
        failed += [f"{broker}: {why}" for broker, why in listed.unlisted.items()]
        if failed:
            unread["groups"] = "; ".join(failed[:5])
        snapshot_offsets = (
            SnapshotOffset(
                group=group,
                topic=at.topic,
                partition=at.partition,
                offset=committed.offset,
                metadata=committed.metadata or "",
            )
            for group, offsets in read.offsets.items()
            for at, committed in offsets.items()
            if at.topic in topics
        )
        return sorted(snapshot_offsets, key=lambda offset: (offset.group, offset.topic, offset.partition))


async def _configs(
    cluster: KafkaCluster, topics: Sequence[str], unread: dict[str, str]
) -> Mapping[str, dict[str, str]]:
    """Returns the values that are set on each topic itself. Raises WireError."""
    settings: dict[str, dict[str, str]] = {}
    async for topic in topic_configs(cluster, topics):
        if topic.error is ErrorCode.NONE:
            explicit = {entry.key: entry.value for entry in topic.entries if entry.explicit}
            settings[topic.name] = {
                key: value for key, value in sorted(explicit.items()) if value is not None
            }
        else:
            unread["configs"] = f"{topic.name}: {topic.error.name}"
    return settings


def _topic(topic: TopicMetadata, config: dict[str, str]) -> SnapshotTopic:
    first = next(iter(topic.partitions.values()))
    return SnapshotTopic(
        name=topic.name,
        topic_id=topic.id.hex(),
        partitions=len(topic.partitions),
        replication=max(len(first.replicas), 1),
        config=config,
    )
