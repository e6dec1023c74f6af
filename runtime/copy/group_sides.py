"""Both sides of a flow as group sync sees them: what groups committed, what was written, what is mapped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from runtime.contract.checkpoint import Checkpoint, CheckpointKey
from runtime.contract.groups import Item, is_ours
from runtime.contract.ledger import Progress
from runtime.contract.route import Router
from runtime.contract.translate import Pending, Position, clamped
from runtime.copy.atlas import Atlas, atlas_at
from runtime.copy.checkpoints import Checkpoints
from runtime.copy.ledger import Ledger
from runtime.copy.translator import Translator
from runtime.copy.wire.asking import list_offsets
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.protocol.metadata import Topic
from runtime.copy.wire.protocol.offsets import EARLIEST, ListedOffset, TopicPartition

RECREATED_HERE = "the topic at the destination is not the one that was copied into"
NO_MAPS = "both sides write the topic, and the source's maps can't be read"
RECREATED_THERE = "the topic at the source is not the one that was copied"


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an offset goes: a partition of the destination, and the position in it."""

    at: TopicPartition
    position: Position


class Sides:
    """Made anew when a cluster is opened anew. Without a source, what is at the destination must do."""

    def __init__(self, flow: str, source: Cluster | None, destination: Cluster) -> None:
        self.source = source
        self.destination = destination
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
            if self.source is None and self.merged(item.topic):
                position = Pending(NO_MAPS)
            elif (
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
        return await self._clamp(found)

    async def _topics(self, cluster: Cluster, names: Collection[str]) -> dict[str, Topic]:
        return await cluster.topics(names, fresh=True) if names else {}

    async def _clamp(self, found: Mapping[Item, Placed]) -> dict[Item, Placed]:
        wanted = {one.at for one in found.values() if one.at.topic}
        starts = await list_offsets(self.destination, dict.fromkeys(wanted, EARLIEST)) if wanted else {}
        return {
            item: Placed(one.at, _clamped(one.position, starts.get(one.at))) for item, one in found.items()
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
