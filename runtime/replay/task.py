"""What runs in a Spark task's Python worker: orphans of some partitions, each copied exactly once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import uvloop

from runtime.audit.ledger import AuditFailure, producers_at
from runtime.audit.verify.logs import open_spec
from runtime.batch import Batch, BatchFailure, RewriteSpec, Walked, Where, walk
from runtime.contract.records.ledger import Replayed, ReplayedKey, UnreadableRecord
from runtime.contract.records.orphans import NONE, Stretch, left
from runtime.contract.records.producers import Producer
from runtime.contract.records.provenance import Home, Place
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.views.salvage_view import ReplayedPart
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, ConnectionFailure, WireError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, TopicPartition
from runtime.kafka.queries.partitions import offsets_of
from runtime.kafka.timing import Patience
from runtime.ledger.ledger import Ledger
from runtime.ledger.maps import Maps
from runtime.replay.request import (
    Part,
    ReplayRequest,
    decode_part,
    decode_request,
    encode_replayed,
)
from runtime.replay.writer import ReplayWriter, replayer
from runtime.slot.failpoints import from_environment
from runtime.slot.partition import Cursor, now_ms
from runtime.slot.read.batch_filter import MERGE, Kept, keep

SAID = "salvage: "  # what begins so is for the person who waits
_PAUSE_S = 0.5
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Stopped(Exception):
    """The partition can't be copied to its end; words for a person."""


def run_task(request: bytes, parts: Iterable[bytes]) -> Iterator[bytes]:
    """For mapPartitions."""
    asked = decode_request(request)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for part in map(decode_part, parts):
            yield encode_replayed(runner.run(_replayed(asked, part)))


async def _replayed(asked: ReplayRequest, part: Part) -> ReplayedPart:
    records = 0
    try:
        async with (
            open_spec(asked.source, asked.flow.source) as source,
            open_spec(asked.destination, asked.flow.destination) as destination,
        ):
            copy = Replay(asked, part, source, destination)
            try:
                await copy.run()
            finally:
                records = copy.records
    except (AuditFailure, Stopped, BatchFailure, UnreadableRecord) as error:
        return ReplayedPart(part.topic, part.partition, part.into, records, str(error))
    return ReplayedPart(part.topic, part.partition, part.into, records)


class Replay:
    """One partition. Where an earlier one stopped, be it by kill -9, the ledger says (R1)."""

    def __init__(self, asked: ReplayRequest, part: Part, source: Cluster, destination: Cluster) -> None:
        self.records = 0
        self._asked, self._part = asked, part
        self._source, self._destination = source, destination
        self._key = part.key(asked.flow.name)
        self._from = TopicPartition(part.topic, part.partition)
        self._to = TopicPartition(part.into, part.partition)
        self._spec = rewrite_spec(asked.flow, part, source.cluster_id, destination.cluster_id)
        self._producers: Mapping[int, Producer] = {}
        self._before: int | None = None  # records on record when this began

    async def run(self) -> None:
        """Anything that fails begins anew from what is committed (fencing 1), while it moves on."""
        producer = replayer(
            self._key.flow,
            self._asked.flow.source,
            self._source.cluster_id,
            self._key.topic,
            self._part.mirror,
        )
        patience, before = Patience(self._asked.within_s), self.records
        while True:
            try:
                self._producers = await producers_at(self._source)
                writer = await ReplayWriter.begin(self._destination, self._key, producer)
                writer.passing = _passing
                await self._copy(writer)
                return
            except WireError as error:
                if self.records > before:
                    patience.renew()
                    before = self.records
                if patience.over() or not _passes(error):
                    raise Stopped(_words(error)) from error
            await asyncio.sleep(_PAUSE_S)

    async def _copy(self, writer: ReplayWriter) -> None:
        ledger = await Ledger.open(self._destination)
        maps = Maps(self._destination, ledger)
        await maps.refresh(self._key.flow)
        progress = ledger.all_progress(self._key.flow).get(self._key)
        if progress is None:
            raise Stopped("the ledger does not know it")
        topic = (await self._source.topics([self._key.topic], fresh=True))[self._key.topic]
        if topic.id != progress.source_topic_id:
            raise Stopped(f"{self._key.topic} is not the topic that was copied: it was recreated")
        start, end = await self._log()
        orphans = ledger.orphans(self._key.flow).get(self._key, NONE)
        self._count(sum(one.records for _, one in orphans.replayed))
        # Beyond its position the flow may copy by itself some day: nothing of that is touched.
        for one in left(progress, orphans, maps.get(self._key), topic.id, min(end, progress.position)):
            if one.end > start:
                await self._stretch(writer, one._replace(low=max(one.low, start)), topic.id)

    def _count(self, on_record: int) -> None:
        """A transaction whose answer was lost counts where the ledger has it."""
        if self._before is None:
            self._before = on_record
        self.records = on_record - self._before

    async def _log(self) -> tuple[int, int]:
        within, found = self._asked.within_s, []
        for question in (EARLIEST, LATEST):
            asked = await offsets_of(self._source, {self._from: question}, Isolation.READ_COMMITTED, within)
            found.append(asked[self._from])
        return found[0], found[1]

    async def _stretch(self, writer: ReplayWriter, stretch: Stretch, topic_id: bytes) -> None:
        position, copied = stretch.low, 0
        while position < stretch.end:
            kept = self._keep(await self._fetch(position), position, stretch.end)
            batches = [out.batch for out, _ in kept.outgoing]
            if kept.failure is not None and not batches:
                raise kept.failure
            position = min(kept.cursor.offset, stretch.end)
            copied += sum(batch.records for batch in batches)
            done = Replayed(position, topic_id, self._to.topic, copied, now_ms())
            await writer.carry(self._to, batches, {ReplayedKey(self._key, stretch.low): done})
            self.records += sum(batch.records for batch in batches)
            _say(f"{self._key.topic}-{self._key.partition}: {self.records:,} records, up to {position}")
            if kept.failure is not None:
                raise kept.failure

    def _keep(self, answer: FetchedPartition, position: int, end: int) -> Kept:
        walked = walk(answer.records, self._spec.where)
        if not walked.sets and walked.failure is None:
            if answer.last_stable_offset < end:
                raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(self._spec.where))
            return Kept([], Cursor(end, -1), 0, None)  # compaction took all that was left
        home = self._going_home(walked)
        spec = replace(self._spec, end=end)
        return keep(walked, spec, Cursor(position, -1), answer.aborted, home, now_ms())

    def _going_home(self, walked: Walked) -> set[int]:
        flow, home = self._asked.flow, self._spec.home
        mine = flow.provenance == "batch" and flow.native_only
        ids = {one.producer_id for one in walked.sets if isinstance(one, Batch)}
        known = ((one, self._producers.get(one)) for one in ids)
        return {
            one
            for one, producer in known
            if producer is not None and (mine or producer.home(self._key.topic) == home)
        }

    async def _fetch(self, position: int) -> FetchedPartition:
        answer = await fetch_once(self._source, self._from, position, self._asked.bytes, "salvage")
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, f"{self._from.topic}-{self._from.partition}")
        return answer


_passing = from_environment(os.environ)


def rewrite_spec(flow: FlowSpec, part: Part, source_id: str, destination_id: str) -> RewriteSpec:
    """As a slot of the flow would, and always with the header: nothing else tells where these come from, and
    what is there already by its header is not copied, whatever the flow's provenance.
    """
    return RewriteSpec(
        where=Where(part.topic, part.partition),
        max_batch=part.max_message_bytes,
        provenance=Place(source_id, part.topic, part.partition),
        home=Home(destination_id, part.mirror),
        native_only=flow.native_only and flow.provenance == "headers",
        merge=MERGE,
    )


def _passes(error: WireError) -> bool:
    """Whether it may be another time. Who was fenced does not fence back."""
    match error:
        case BrokerError(code=code):
            return code not in _FENCED and (code.retriable or code is ErrorCode.OFFSET_OUT_OF_RANGE)
        case _:
            return isinstance(error, ConnectionFailure)


def _words(error: WireError) -> str:
    if isinstance(error, BrokerError) and error.code in _FENCED:
        return "another replay of it began, or its transaction took too long"
    return str(error)


def _say(text: str) -> None:
    sys.stderr.write(f"{SAID}{text}\n")
    sys.stderr.flush()
