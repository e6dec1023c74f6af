"""Both sides of a flow as group sync sees them: what groups committed, what was written, what is mapped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from runtime.contract.groups.decisions import Item, is_ours
from runtime.contract.groups.translate import At, Nowhere, Pending, Position, by_time, clamped, merged
from runtime.contract.records.checkpoint import Checkpoint, CheckpointKey
from runtime.contract.records.ledger import Progress
from runtime.contract.spec.route import Router
from runtime.groups.translator import Translator
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.metadata import Topic
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets
from runtime.ledger.checkpoints import Checkpoints
from runtime.ledger.consumer_times import Times
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import Atlas, atlas_at

RECREATED_HERE = "the topic at the destination is not the one that was copied into"
NO_MAPS = "both sides write the topic, and the source's maps can't be read"
RECREATED_THERE = "the topic at the source is not the one that was copied"


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an offset goes: a partition of the destination, and the position in it. `floor`: the smallest
    position over the other origins, where several clusters write the topic.
    """

    at: TopicPartition
    position: Position
    floor: int | None = None


class Sides:
    """Made anew when a cluster is opened anew. Without a source, what is at the destination must do. With
    `times`, what lies below the map is placed by record time.
    """

    def __init__(
        self, flow: str, source: Cluster | None, destination: Cluster, times: Times | None = None
    ) -> None:
        self.source = source
        self.destination = destination
        self.times = times
        self._flow = flow
        self._written_there = Checkpoints(source) if source is not None else None
        self._written_here = Checkpoints(destination)
        self._atlas_here: Atlas | None = None
        self._atlas_there: Atlas | None = None
        self._translator: Translator | None = None

    async def refresh(self, router: Router, ledger: Ledger, topics: Iterable[str]) -> None:
        """After the groups' offsets were read: what the maps then show is not older. Raises WireError."""
        if self._atlas_here is None:
            self._atlas_here = Atlas(self.destination, ledger)
        there = self._atlas_there
        if there is None and self.source is not None:
            there = await atlas_at(self.source)
        if self._translator is None or there is not self._atlas_there:
            self._atlas_there = there
            self._translator = Translator(self._flow, router, self._atlas_here, there)
        await self._written_here.refresh()
        if self._written_there is not None:
            await self._written_there.refresh()
        if self.times is not None:
            await self.times.refresh()
        await self._translator.refresh(topics)

    def progress(self, item: Item) -> Progress | None:
        assert self._translator is not None
        return self._translator.progress(item.topic, item.partition)

    def last(self, item: Item) -> Checkpoint | None:
        return self._written_here.get(CheckpointKey(self._flow, *item))

    def wrote(self, group: str, at: TopicPartition) -> frozenset[int]:
        """What this product, by any flow, may have put at the destination."""
        found = self._written_here.at(group, *at)
        return frozenset(offset for checkpoint in found for offset in checkpoint.ours)

    def is_ours(self, item: Item, committed: int) -> bool:
        """Whether another flow of this product put it at the source."""
        return self._written_there is not None and is_ours(committed, self._written_there.at(*item))

    def merged(self, topic: str) -> bool:
        """Whether its records at the source came from several clusters."""
        assert self._translator is not None
        return bool(self._translator.origins(topic))

    async def place(self, offsets: Mapping[Item, int]) -> dict[Item, Placed]:
        """Positions, never below what the destination still holds; topics that are others now wait."""
        assert self._translator is not None
        there: dict[str, Topic] | None = None
        if self.source is not None:
            there = await self._topics(self.source, {item.topic for item in offsets})
        progress = {item: self._translator.progress(item.topic, item.partition) for item in offsets}
        names = {one.destination_topic for one in progress.values() if one is not None}
        here = await self._topics(self.destination, names)
        found: dict[Item, Placed] = {}
        for item, committed in offsets.items():
            known = progress[item]
            at = TopicPartition(known.destination_topic if known is not None else "", item.partition)
            position: Position
            if (
                known is not None
                and there is not None
                and not _same(there.get(item.topic), known.source_topic_id)
            ):
                position = Pending(RECREATED_THERE)
            elif known is not None and not _same(here.get(at.topic), known.destination_topic_id):
                position = Pending(RECREATED_HERE)
            else:
                position = self._translator.position(item.topic, item.partition, committed)
            found[item] = Placed(at, position)
        found |= await self._by_time(found, offsets)
        return await self._clamp(
            {item: self._merged(item, one, offsets[item]) for item, one in found.items()}
        )

    async def _by_time(self, found: Mapping[Item, Placed], offsets: Mapping[Item, int]) -> dict[Item, Placed]:
        """Of what lies below the map. Raises WireError."""
        times = self.times
        below = {item: one for item, one in found.items() if isinstance(one.position, Nowhere)}
        if times is None or not below:
            return {}
        assert self._translator is not None
        await times.learn({item: offsets[item] for item in below})
        places = await times.places({item: (one.at, offsets[item]) for item, one in below.items()})
        timed = {}
        for item, first in places.items():
            own = self._translator.map(item.topic, item.partition)
            if own is not None:
                timed[item] = replace(below[item], position=by_time(first, own.destination_low))
        return timed

    def _merged(self, item: Item, placed: Placed, committed: int) -> Placed:
        assert self._translator is not None
        if not self.merged(item.topic):
            return placed
        floor: int | Pending | None
        if self.source is not None:
            floor = self._translator.floor(item.topic, item.partition, committed)
        else:
            floor = self._last_floor(item, committed)
        match floor:
            case Pending():
                return replace(placed, position=floor) if isinstance(placed.position, At) else placed
            case None:
                return placed
            case offset:
                return replace(placed, position=merged(placed.position, [offset]), floor=offset)

    def _last_floor(self, item: Item, committed: int) -> int | Pending:
        """As the source's maps told it when it was last heard of. That of an earlier commit is smaller."""
        last = self.last(item)
        if last is not None and last.source <= committed and last.floor >= 0:
            return last.floor
        return Pending(NO_MAPS)

    async def _topics(self, cluster: Cluster, names: Collection[str]) -> dict[str, Topic]:
        return await cluster.topics(names, fresh=True) if names else {}

    async def _clamp(self, found: Mapping[Item, Placed]) -> dict[Item, Placed]:
        wanted = {one.at for one in found.values() if one.at.topic}
        starts = await list_offsets(self.destination, dict.fromkeys(wanted, EARLIEST)) if wanted else {}
        return {
            item: replace(one, position=_clamped(one.position, starts.get(one.at)))
            for item, one in found.items()
        }


def _same(topic: Topic | None, known: bytes) -> bool:
    return topic is not None and topic.error is ErrorCode.NONE and topic.id == known


def _clamped(position: Position, start: ListedOffset | ErrorCode | None) -> Position:
    match start:
        case ListedOffset(offset=offset):
            return clamped(position, offset)
        case ErrorCode():
            return Pending(f"where the destination's log starts is not known: {start.name}")
        case None:
            return position
