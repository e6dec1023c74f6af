"""Translates group offsets for one flow, by the offset maps and checkpoints of both sides (R6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.groups import (
    PendingTranslation,
    Position,
    SourceTopicWriter,
    TranslatedOffset,
    UntranslatableOffset,
    by_time,
    clamped,
    earliest_reachable_offset,
    earliest_unread_offset,
    is_ours,
    merged,
    origins_of,
    position,
)
from runtime.contract.records import group_records
from runtime.contract.records.group_records import Checkpoint, GroupPartition
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.route import Router
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset
from runtime.kafka.queries import list_offsets
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import OffsetMaps, offset_maps_at
from runtime.ledger.records import InternalTopicScan, TopicReplaced

Place = tuple[str, str, int]  # Group, topic and partition at the cluster itself.
FlowItem = tuple[str, GroupPartition]


class Checkpoints:
    """The newest checkpoints of a cluster, by key and by the partition that they set.

    `refresh` must come first. A cluster that no job copies into has no checkpoints. A checkpoint of a newer
    format version is ignored.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._scan: InternalTopicScan | None = None
        self._by_flow: dict[str, dict[GroupPartition, Checkpoint]] = {}
        # A flow may copy two topics into the same destination topic one after the other, so that several keys
        # share a place.
        self._by_place: dict[Place, tuple[FlowItem, ...]] = {}

    async def refresh(self) -> None:
        """Reads the checkpoints that were written since the last call. Raises WireError.

        Several flows may call it at the same time. Where the topic was replaced, the older checkpoints stay
        until the new topic is read, because another flow may be using them.
        """
        scan = await self._open_scan()
        if scan is None:
            return
        try:
            await scan.refresh()
        except TopicReplaced:
            fresh = Checkpoints(self._cluster)
            await fresh.refresh()
            self._scan, self._by_flow, self._by_place = fresh._scan, fresh._by_flow, fresh._by_place
            return
        for stored, value in scan.fold.news():
            self._take_record(stored, value)

    async def _open_scan(self) -> InternalTopicScan | None:
        if self._scan is None:
            topic = (await self._cluster.topics([naming.CHECKPOINTS]))[naming.CHECKPOINTS]
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._scan = InternalTopicScan(self._cluster, naming.CHECKPOINTS, 0, keep_values=False)
        return self._scan

    def get(self, flow: str, item: GroupPartition) -> Checkpoint | None:
        """Returns a flow's newest checkpoint of an item."""
        return self._by_flow.get(flow, {}).get(item)

    def of_flow(self, flow: str) -> dict[GroupPartition, Checkpoint]:
        """Returns the newest checkpoints of a flow."""
        return dict(self._by_flow.get(flow, {}))

    def at(self, group: str, topic: str, partition: int) -> list[Checkpoint]:
        """Returns the newest checkpoint of every flow for one partition of the cluster and a group."""
        keys = self._by_place.get((group, topic, partition), ())
        return [self._by_flow[flow][item] for flow, item in keys]

    def _take_record(self, stored: bytes, value: bytes | None) -> None:
        key = group_records.decode_checkpoint_key(stored)
        if key is None:
            return
        flow, item = key
        mine = self._by_flow.setdefault(flow, {})
        older = mine.pop(item, None)
        if older is not None:
            self._leave(_place(item, older), key)
        try:
            checkpoint = group_records.decode_checkpoint(value) if value is not None else None
        except UnreadableValue:
            return
        if checkpoint is not None:
            mine[item] = checkpoint
            place = _place(item, checkpoint)
            self._by_place[place] = (*self._by_place.get(place, ()), key)

    def _leave(self, place: Place, key: FlowItem) -> None:
        """Removes a key from a place, and the place where no key is left."""
        left = tuple(other for other in self._by_place[place] if other != key)
        if left:
            self._by_place[place] = left
        else:
            del self._by_place[place]


def _place(item: GroupPartition, checkpoint: Checkpoint) -> Place:
    return item.group, checkpoint.destination_topic, item.partition


class ClusterRecords:
    """The checkpoints and offset maps of one cluster, for all flows that translate by them.

    If each flow had its own, memory and reading would grow with the square of a job's size.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.checkpoints = Checkpoints(cluster)
        self._maps: OffsetMaps | None = None

    def maps_by(self, ledger: Ledger) -> OffsetMaps:
        """Returns the offset maps, which read their progress from this ledger of the cluster."""
        if self._maps is None:
            self._maps = OffsetMaps(self.cluster, ledger)
        return self._maps

    async def maps(self) -> OffsetMaps | None:
        """Returns the offset maps, or None where no job ever copied into the cluster. Raises WireError."""
        if self._maps is None:
            maps = await offset_maps_at(self.cluster)
            self._maps = self._maps or maps  # another flow may have opened them meanwhile
        return self._maps


class RecordsByCluster:
    """Keeps the records of each cluster for as long as the cluster stays open."""

    def __init__(self) -> None:
        self._by_name: dict[str, ClusterRecords] = {}

    def of(self, name: str, cluster: KafkaCluster) -> ClusterRecords:
        """Returns the records of a cluster; they are read anew when the cluster was opened again."""
        records = self._by_name.get(name)
        if records is None or records.cluster is not cluster:
            records = self._by_name[name] = ClusterRecords(cluster)
        return records


NO_PROGRESS = PendingTranslation("nothing of this partition was copied yet")
SEALING = PendingTranslation("its offset map is being written", temporary=True)
RECREATED_HERE = PendingTranslation("the topic at the destination is not the one that was copied into")
NO_MAPS = PendingTranslation("both sides write the topic, and the source's maps can't be read")
RECREATED_THERE = PendingTranslation("the topic at the source is not the one that was copied")


class Translator:
    """A translator owns the routes of one flow and reads the offset maps of both sides.

    `refresh` must come first. Without a source, only the destination's maps are used.
    """

    def __init__(
        self, flow: str, router: Router, destination_maps: OffsetMaps, source: ClusterRecords | None
    ) -> None:
        self._route = router.routes[flow]
        self._router = router
        self._destination_maps = destination_maps
        self._source = source
        self._source_maps: OffsetMaps | None = None  # also where no job copied into the source until now
        self._origins: dict[str, tuple[SourceTopicWriter, ...]] = {}

    async def refresh(self, topics: Iterable[str]) -> None:
        """Reads the maps that the translation of these topics needs. Raises WireError."""
        origins = {origin for topic in topics for origin in self.origins(topic)}
        flow_name = self._route.route.name
        for flow in dict.fromkeys([flow_name, *(origin.destination_flow or flow_name for origin in origins)]):
            await self._destination_maps.refresh(flow)
        if self._source is not None:
            self._source_maps = await self._source.maps()
        if self._source_maps is not None:
            for flow in dict.fromkeys(origin.flow for origin in origins):
                await self._source_maps.refresh(flow)

    def progress(self, topic: str, partition: int) -> Progress | None:
        """Returns the flow's committed progress of a partition."""
        key = self._key(topic, partition)
        return self._destination_maps.progress(key.flow).get(key)

    def map(self, topic: str, partition: int) -> OffsetMap | None:
        """Returns the flow's own offset map of a partition, or None where none can be read now."""
        return self._destination_maps.get(self._key(topic, partition))

    def flow_progress(self) -> Mapping[PartitionKey, Progress]:
        """Returns the committed progress of every partition that the flow ever copied."""
        return self._destination_maps.progress(self._route.route.name)

    def floor(self, topic: str, partition: int, committed: int) -> int | PendingTranslation | None:
        """Returns the smallest position over the other origins, for a topic that several clusters write.

        It only grows, so an older value never skips records either. It is None for any other topic.
        """
        origins = self.origins(topic)
        if not origins:
            return None
        if any(self._sealing(origin, partition) for origin in origins):
            return SEALING
        return min(self._not_read(origin, partition, committed) for origin in origins)

    def origins(self, topic: str) -> tuple[SourceTopicWriter, ...]:
        """Returns the other clusters from which records of the topic come."""
        if topic not in self._origins:
            self._origins[topic] = origins_of(self._router, self._route.route.name, topic)
        return self._origins[topic]

    def merged(self, topic: str) -> bool:
        """Returns whether the topic's records at the source came from several clusters."""
        return bool(self.origins(topic))

    def only_markers_between(self, item: GroupPartition, committed: int, first: int, end: int) -> bool:
        """Returns whether a consumer reads the same records from `first` as from `end` at the destination.

        `end` is the translation of the source offset `committed`. It grows over the markers behind the last
        copied record when the next record is copied. Where several clusters write the topic, the offsets
        between may hold records of the others.
        """
        offset_map = self.map(item.topic, item.partition)
        if offset_map is None or self.merged(item.topic):
            return False
        return offset_map.destination_behind(committed) <= first <= end

    def _key(self, topic: str, partition: int) -> PartitionKey:
        return PartitionKey(self._route.route.name, topic, partition)

    def _sealing(self, origin: SourceTopicWriter, partition: int) -> bool:
        """Returns whether a map of the origin is being written."""
        at_source = PartitionKey(origin.flow, origin.topic, partition)
        at_destination = PartitionKey(origin.destination_flow or "", origin.topic, partition)
        return self._destination_maps.sealing(at_destination) or (
            self._source_maps is not None and self._source_maps.sealing(at_source)
        )

    def _not_read(self, origin: SourceTopicWriter, partition: int, committed: int) -> int:
        """Returns the position of the first record of an origin that the group has not read."""
        key = PartitionKey(origin.flow, origin.topic, partition)
        first = earliest_unread_offset(
            self._source_maps.get(key) if self._source_maps is not None else None, committed
        )
        if origin.destination_flow is None:
            return first
        return earliest_reachable_offset(
            self._destination_maps.get(PartitionKey(origin.destination_flow, origin.topic, partition)), first
        )


class PlacedOffset(Struct, frozen=True):
    """The translation of an offset: a partition at the destination, and the position in it.

    `floor` is the smallest position over the other origins, where several clusters write the topic.
    """

    at: TopicPartition
    position: Position
    floor: int | None = None


class MirrorState(Struct, frozen=True):
    """What the translation of a source partition's offsets needs to know of its mirror, as of one look.

    `at` is the mirror, without a name where nothing was copied. With an `obstacle`, no offset can be
    translated now. `log_start` is the mirror's, or the error of the broker that was asked for it.
    """

    at: TopicPartition
    offsets: OffsetMap | None
    obstacle: PendingTranslation | None
    log_start: ListedOffset | ErrorCode | None

    def position(self, committed: int) -> Position:
        """Returns the position of an offset by the flow's own map only."""
        if self.obstacle is not None or self.offsets is None:
            return self.obstacle or NO_PROGRESS
        return position(self.offsets, committed)

    def clamp(self, unclamped: Position) -> Position:
        """Returns the position, moved up to the mirror's log start where it lies below."""
        match self.log_start:
            case ListedOffset(offset=offset):
                return clamped(unclamped, offset)
            case ErrorCode():
                return PendingTranslation(
                    f"where the destination's log starts is not known: {self.log_start.name}",
                    temporary=self.log_start.retriable,
                )
            case None:
                return unclamped


async def mirror_states(
    translator: Translator,
    source: KafkaCluster | None,
    destination: KafkaCluster,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, MirrorState]:
    """Returns the mirrors of source partitions. Raises WireError.

    Without a source, it is not checked whether its topics are those that were copied.
    """
    progress = {partition: translator.progress(*partition) for partition in partitions}
    source_topics = await _topics(source, {at.topic for at in partitions}) if source is not None else None
    destination_topics = await _topics(
        destination, {copied.destination_topic for copied in progress.values() if copied is not None}
    )
    mirrors = {}
    for partition, copied in progress.items():
        if copied is None:
            mirrors[partition] = MirrorState(TopicPartition("", partition.partition), None, NO_PROGRESS, None)
            continue
        at = TopicPartition(copied.destination_topic, partition.partition)
        offsets, obstacle = translator.map(*partition), None
        if source_topics is not None:
            topic = source_topics.get(partition.topic)
            obstacle = _obstacle(topic, copied.source_topic_id, RECREATED_THERE)
        if obstacle is None:
            topic = destination_topics.get(at.topic)
            obstacle = _obstacle(topic, copied.destination_topic_id, RECREATED_HERE)
        if obstacle is None and offsets is None:
            obstacle = SEALING
        mirrors[partition] = MirrorState(at, offsets, obstacle, None)
    wanted = {mirror.at for mirror in mirrors.values() if mirror.at.topic}
    starts = await list_offsets(destination, dict.fromkeys(wanted, EARLIEST)) if wanted else {}
    return {
        partition: replace(mirror, log_start=starts.get(mirror.at)) for partition, mirror in mirrors.items()
    }


async def _topics(cluster: KafkaCluster, names: Collection[str]) -> dict[str, TopicMetadata]:
    return await cluster.topics(names, fresh=True) if names else {}


def _obstacle(
    topic: TopicMetadata | None, topic_id: bytes, recreated: PendingTranslation
) -> PendingTranslation | None:
    """Returns `recreated` where a topic is gone or has another id than the known one.

    Any other error of a broker says nothing about the topic.
    """
    if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return recreated
    if topic.error is not ErrorCode.NONE:
        why = f"the metadata of {topic.name} can't be read: {topic.error.name}"
        return PendingTranslation(why, temporary=topic.error.retriable)
    return recreated if is_other_topic(topic_id, topic.id) else None


class GroupOffsetSides:
    """The checkpoints, offset maps and clients of both sides of a flow.

    It is created again when a cluster is opened again. Without a source, only the destination's data is
    used. With `times`, offsets below the map are translated by record timestamp.
    """

    def __init__(
        self,
        flow: str,
        router: Router,
        ledger: Ledger,
        source: ClusterRecords | None,
        destination: ClusterRecords,
        times: ConsumerTimeTable | None = None,
    ) -> None:
        self.source = source.cluster if source is not None else None
        self.destination = destination.cluster
        self.times = times
        self.translator = Translator(flow, router, destination.maps_by(ledger), source)
        self._flow = flow
        self._source_checkpoints = source.checkpoints if source is not None else None
        self._destination_checkpoints = destination.checkpoints

    async def refresh(self, topics: Iterable[str]) -> None:
        """Reads maps, checkpoints and timestamps. Raises WireError.

        It must be called after the groups' offsets were read, so that the maps are not older than the
        offsets.
        """
        await self._destination_checkpoints.refresh()
        if self._source_checkpoints is not None:
            await self._source_checkpoints.refresh()
        if self.times is not None:
            await self.times.refresh()
        await self.translator.refresh(topics)

    def last(self, item: GroupPartition) -> Checkpoint | None:
        """Returns the flow's last checkpoint of the item."""
        return self._destination_checkpoints.get(self._flow, item)

    def wrote(self, group: str, at: TopicPartition) -> frozenset[int]:
        """Returns the offsets that this product may have committed at the destination, by any flow."""
        checkpoints = self._destination_checkpoints.at(group, *at)
        return frozenset(offset for checkpoint in checkpoints for offset in checkpoint.ours)

    def is_ours(self, item: GroupPartition, committed: int) -> bool:
        """Returns whether another flow of this product committed the offset at the source."""
        return self._source_checkpoints is not None and is_ours(committed, self._source_checkpoints.at(*item))

    async def place(self, offsets: Mapping[GroupPartition, int]) -> dict[GroupPartition, PlacedOffset]:
        """Returns the translated positions, never below the destination's log start. Raises WireError.

        The position of a recreated topic is pending.
        """
        mirrors = await mirror_states(
            self.translator,
            self.source,
            self.destination,
            {TopicPartition(item.topic, item.partition) for item in offsets},
        )
        mirror_of = {item: mirrors[TopicPartition(item.topic, item.partition)] for item in offsets}
        positions = {
            item: PlacedOffset(mirror_of[item].at, mirror_of[item].position(committed))
            for item, committed in offsets.items()
        }
        positions |= await self._by_time(positions, offsets)
        placed = {item: self._merged(item, placed, offsets[item]) for item, placed in positions.items()}
        return {
            item: replace(place, position=mirror_of[item].clamp(place.position))
            for item, place in placed.items()
        }

    async def _by_time(
        self, positions: Mapping[GroupPartition, PlacedOffset], offsets: Mapping[GroupPartition, int]
    ) -> dict[GroupPartition, PlacedOffset]:
        """Returns the positions of offsets below the map, by record timestamp. Raises WireError."""
        times = self.times
        below = {
            item: placed
            for item, placed in positions.items()
            if isinstance(placed.position, UntranslatableOffset)
        }
        if times is None or not below:
            return {}
        await times.read_from_source({item: offsets[item] for item in below})
        places = await times.places({item: (placed.at, offsets[item]) for item, placed in below.items()})
        timed = {}
        for item, first in places.items():
            offset_map = self.translator.map(item.topic, item.partition)
            if offset_map is not None:
                timed[item] = replace(below[item], position=by_time(first, offset_map.destination_low))
        return timed

    def _merged(self, item: GroupPartition, placed: PlacedOffset, committed: int) -> PlacedOffset:
        """Returns the position bounded by the floor, for a topic that several clusters write."""
        if not self.translator.merged(item.topic):
            return placed
        floor: int | PendingTranslation | None
        if self.source is not None:
            floor = self.translator.floor(item.topic, item.partition, committed)
        else:
            floor = self._last_floor(item, committed)
        match floor:
            case PendingTranslation():
                return (
                    replace(placed, position=floor)
                    if isinstance(placed.position, TranslatedOffset)
                    else placed
                )
            case None:
                return placed
            case offset:
                return replace(placed, position=merged(placed.position, [offset]), floor=offset)

    def _last_floor(self, item: GroupPartition, committed: int) -> int | PendingTranslation:
        """Returns the floor of the last checkpoint, which was computed from the source's maps.

        The floor of an earlier commit is smaller, so it is safe.
        """
        last = self.last(item)
        if last is not None and last.source <= committed and last.floor >= 0:
            return last.floor
        return NO_MAPS
