"""Runs in a Spark task's Python worker: it compares some pieces through the wire's own client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure, producers_at
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    OpenTransactionTimeout,
    RecordsExpired,
    fetch_places,
    open_spec,
)
from runtime.audit.verify.loaded import verify_loaded
from runtime.audit.verify.pieces import (
    ComparedRecord,
    RecordComparer,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
    decode_request,
)
from runtime.audit.verify.provenance import ProvenanceFilter, ReplayedRecord, ReplayedRecords, content_of
from runtime.audit.verify.stored import verify_stored
from runtime.batch import BatchFailure
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.offset_map import decode_runs
from runtime.contract.records.provenance import ClusterTopic, FlowProducer
from runtime.contract.spec import naming
from runtime.contract.spec.transform import TransformSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot.budget import TokenBucket
from runtime.sql.formats.registry import RegistryUnavailable
from runtime.sql.rows import InvalidValue, row_of, tombstone_headers

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.files.transformed import FileTransform
    from runtime.sql.query_input import QueryInput
    from runtime.sql.transformer import Evaluates

RESULT = "result"  # the column of the result, in the output of verify_pieces_with_sql

_pieces = msgspec.msgpack.Decoder(list[VerificationPiece])
_verified = msgspec.msgpack.Decoder(list[VerifiedPiece])


def encode_pieces(pieces: Sequence[VerificationPiece]) -> bytes:
    return msgspec.msgpack.encode(pieces)


def decode_verified(text: bytes) -> list[VerifiedPiece]:
    return _verified.decode(text)


def verify_pieces(request: bytes, tasks: int, groups: Iterable[bytes]) -> Iterator[bytes]:
    """Compares the given pieces. Spark calls it through mapPartitions.

    `tasks` is the number of tasks that run concurrently and share the rate.
    """
    import uvloop  # a comparison in the planner's own process goes without

    asked = decode_request(request)
    for group in groups:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            yield msgspec.msgpack.encode(runner.run(_verify(asked, tasks, _pieces.decode(group))))


def verify_here(asked: VerifyRequest, pieces: Sequence[VerificationPiece]) -> list[VerifiedPiece]:
    """Compares the given pieces in this process, without Spark. The flow must have no transform."""
    return asyncio.run(_verify(asked, 1, pieces))


def verify_pieces_with_sql(
    request: bytes,
    tasks: int,
    group: bytes,
    token: str,
    wanted: QueryInput,
    answers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Compares the given pieces of a flow with a transform, as the collecting worker of a query."""
    import pyarrow as pa
    import uvloop

    asked = decode_request(request)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(_verify_with_sql(asked, tasks, _pieces.decode(group), token, wanted, answers))
    yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(found)], pa.binary())], [RESULT])


async def _verify_with_sql(
    asked: VerifyRequest,
    tasks: int,
    pieces: Sequence[VerificationPiece],
    token: str,
    wanted: QueryInput,
    answers: Iterable[pa.RecordBatch],
) -> list[VerifiedPiece]:
    from runtime.sql.evaluator import serving_evaluator

    transform = asked.flow.transform
    assert transform is not None, "verify_pieces compares without a transform"
    async with serving_evaluator(token, transform, wanted, answers) as evaluator:
        if asked.flow.files is not None:
            from runtime.files.transformed import FileTransform

            return await _verify_files(asked, tasks, pieces, FileTransform(transform, evaluator))
        return await _verify(asked, tasks, pieces, SourceTransform(transform, evaluator))


class SourceTransform:
    """Applies the flow's transform again to records that are read at the source."""

    def __init__(self, transform: TransformSpec, evaluator: Evaluates) -> None:
        from runtime.sql.transformer import Transformer

        self._transformer = Transformer(transform, evaluator)
        self._transform = transform

    async def apply(
        self, topic: str, found: Sequence[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], frozenset[int]]:
        """Returns the records as they are copied, and the offsets of those that are not.

        A bad record is returned as it is where the flow stops before it, and is not copied where the flow
        quarantines it. Raises WireError where a schema registry does not answer.
        """
        if topic == naming.HEARTBEATS:  # they are copied as they are
            return list(found), frozenset()
        try:
            answers = await self._transformer.answers([row_of(record) for record in found])
        except RegistryUnavailable as error:
            raise Disconnected("schema registry", str(error), sent=False) from None
        records: list[ConsumerRecord] = []
        filtered: set[int] = set()
        for one, answer in zip(found, answers, strict=True):
            copied = self._copied(one, answer)
            records.append(copied or replace(one, value=None))
            if copied is None:
                filtered.add(one.offset)
        return records, frozenset(filtered)

    def _copied(self, one: ConsumerRecord, answer: bytes | None) -> ConsumerRecord | None:
        """Returns a record as it is copied; None for one that is not."""
        if one.value is None:  # a tombstone always travels
            return one
        try:
            value = self._transformer.new_value(one.value, answer)
        except InvalidValue:
            return None if self._transform.quarantines else one
        if value is not None:
            return replace(one, value=value)
        if self._transform.deletes(one.key):
            return replace(one, value=None, headers=tombstone_headers(one.headers))
        return None


async def _verify(
    asked: VerifyRequest,
    tasks: int,
    pieces: Sequence[VerificationPiece],
    transform: SourceTransform | None = None,
) -> list[VerifiedPiece]:
    if asked.flow.files is not None or asked.flow.lines is not None:
        return await _verify_files(asked, tasks, pieces)
    try:
        async with (
            open_spec(asked.source, asked.flow.source) as source,
            open_spec(asked.destination, asked.flow.destination) as destination,
        ):
            bucket = TokenBucket(asked.rate // tasks or 1 if asked.rate else None, time.monotonic)
            producers = await producers_at(source), await producers_at(destination)
            work = _Work(asked, source, destination, *producers, bucket, transform)
            found = [await work.compare(piece) for piece in pieces]
            await asyncio.sleep(bucket.wait_s())  # the next task has a bucket of its own
            return found
    except AuditFailure as error:
        return _unread(pieces, error)


async def _verify_files(
    asked: VerifyRequest,
    tasks: int,
    pieces: Sequence[VerificationPiece],
    transform: FileTransform | None = None,
) -> list[VerifiedPiece]:
    try:
        if asked.flow.files is not None:
            return await verify_stored(asked, tasks, pieces, transform)
        return await verify_loaded(asked, tasks, pieces)
    except AuditFailure as error:
        return _unread(pieces, error)


def _unread(pieces: Sequence[VerificationPiece], error: AuditFailure) -> list[VerifiedPiece]:
    return [
        VerifiedPiece(one.number, one.low, one.low, 0, 0, 0, 0, 0, [], False, str(error)) for one in pieces
    ]


class _Work:
    def __init__(
        self,
        asked: VerifyRequest,
        source: KafkaCluster,
        destination: KafkaCluster,
        at_source: Mapping[int, FlowProducer],
        at_destination: Mapping[int, FlowProducer],
        bucket: TokenBucket,
        transform: SourceTransform | None,
    ) -> None:
        self._asked = asked
        self._source, self._destination = source, destination
        self._at_source, self._at_destination = at_source, at_destination
        self._bucket = bucket
        self._transform = transform

    async def compare(self, piece: VerificationPiece) -> VerifiedPiece:
        replayed = ReplayedRecords(
            piece, self._asked.flow.name, self._source.cluster_id, self._at_destination
        )
        pair = PieceComparison(piece, self._filter(piece), self._asked, self._at_destination, replayed)
        within = self._asked.within_s
        at = TopicPartition(piece.topic, piece.partition)
        at_source = CommittedRecordReader(
            self._source, at, piece.source_id, piece.low, piece.high, self._bucket, within
        )
        at = TopicPartition(piece.destination_topic, piece.partition)
        low, high = piece.destination_low, piece.destination_high
        at_destination = CommittedRecordReader(
            self._destination, at, piece.destination_id, low, high, self._bucket, within
        )
        why, passed = "", False
        try:
            while not pair.comparer.done:
                await asyncio.gather(
                    self._feed_source(pair, at_source, piece.topic),
                    self._feed_destination(pair, at_destination, piece),
                )
                pair.comparer.advance()
        except RecordsExpired as error:
            why, passed = str(error), True
        except (WireError, BatchFailure, OpenTransactionTimeout) as error:
            why = str(error)
        return pair.result(why, passed)

    async def _feed_source(self, pair: PieceComparison, side: CommittedRecordReader, topic: str) -> None:
        while pair.comparer.wants_source:
            if side.ended:
                pair.comparer.end_source()
                return
            found, filtered = await side.next(), frozenset[int]()
            if self._transform is not None:
                found, filtered = await self._transform.apply(topic, found)
            pair.add_source(found, filtered)

    async def _feed_destination(
        self, pair: PieceComparison, side: CommittedRecordReader, piece: VerificationPiece
    ) -> None:
        """Reads the destination, and the originals of replayed records from anywhere in the source
        partition.
        """
        while pair.comparer.wants_destination:
            if side.ended:
                pair.comparer.end_destination()
                return
            pair.add_destination(await side.next())
            replays = pair.replays()
            if not replays:
                continue
            at = TopicPartition(piece.topic, piece.partition)
            wanted = [one.original for one in replays]
            originals = await fetch_places(self._source, at, piece.source_id, wanted, self._bucket.take)
            if self._transform is not None and originals:  # a replay applies it, too
                found, _ = await self._transform.apply(piece.topic, list(originals.values()))
                originals = {one.offset: one for one in found}
            pair.compare(replays, originals)

    def _filter(self, piece: VerificationPiece) -> ProvenanceFilter:
        home = ClusterTopic(self._destination.cluster_id, piece.destination_topic)
        return ProvenanceFilter(self._asked.flow, piece.topic, home, self._at_source)


class PieceComparison:
    """Converts a piece's records into lines, less those that are not to be compared."""

    def __init__(
        self,
        piece: VerificationPiece,
        filter_: ProvenanceFilter,
        asked: VerifyRequest,
        producers: Mapping[int, FlowProducer],
        replayed: ReplayedRecords,
    ) -> None:
        self.comparer = RecordComparer(piece.low, compacted=piece.compacted)
        self._piece = piece
        self._filter = filter_
        self._flow = asked.flow
        self._producers = producers
        self._replayed = replayed
        self._replays: list[ReplayedRecord] = []
        runs = decode_runs(piece.runs, piece.low, piece.destination_low)
        self._to = RunOffsetTranslator([(run.source, run.destination, run.records) for run in runs])
        self._from = RunOffsetTranslator([(run.destination, run.source, run.records) for run in runs])
        self._kept_back = self._given_up = self._others = self._filtered = 0

    def add_source(self, found: Iterable[ConsumerRecord], filtered: Container[int] = frozenset()) -> None:
        """Adds records of the source; those at the offsets `filtered` must not be at the destination."""
        lines = []
        for one in found:
            at = self._to.other(one.offset)
            if at is not None:
                if one.offset in filtered:
                    continue
                lines.append(ComparedRecord(one.offset, at, content_of(one)))
            elif self._replayed.holds(one.offset):
                continue  # it is compared when its replay is found
            elif any(low <= one.offset < end for low, end, _ in self._piece.gaps):
                self._given_up += 1
            elif self._filter.drops(one):
                self._kept_back += 1
            elif one.offset in filtered:
                self._filtered += 1
            else:
                lines.append(ComparedRecord(one.offset, at, content_of(one)))
        self.comparer.add_source(lines)

    def add_destination(self, found: Iterable[ConsumerRecord]) -> None:
        lines = []
        for one in found:
            at = self._from.other(one.offset)
            replay = self._replayed.replay_of(one) if at is None else None
            if replay is not None:
                self._replays.append(replay)
            elif at is None and (self._by_design(one) or self._is_its_own(one)):
                self._others += 1
            else:
                lines.append(ComparedRecord(one.offset, at, content_of(one)))
        self.comparer.add_destination(lines)

    def replays(self) -> list[ReplayedRecord]:
        """Returns the replays since the last call."""
        found, self._replays = self._replays, []
        return found

    def compare(self, replays: Iterable[ReplayedRecord], originals: Mapping[int, ConsumerRecord]) -> None:
        edits = (self._replayed.compare(one, originals.get(one.original)) for one in replays)
        self.comparer.edits += (edit for edit in edits if edit is not None)

    def _by_design(self, one: ConsumerRecord) -> bool:
        """Returns whether the record was not written by this flow through its map, and that is no error."""
        producer = self._producers.get(one.producer_id)
        if producer is None:
            return self._flow.shared
        return producer.flow != self._flow.name or one.offset >= self._piece.owned_end

    def _is_its_own(self, one: ConsumerRecord) -> bool:
        """Returns whether a client wrote the record at a time when the destination was writable, and it
        stayed there.
        """
        if one.offset >= self._piece.owned_end and not self._piece.alone:
            return True
        return any(low <= one.offset < end for low, end in self._piece.own)

    def result(self, why: str, passed: bool) -> VerifiedPiece:
        comparer = self.comparer
        stopped = comparer.full or bool(why)
        return VerifiedPiece(
            self._piece.number,
            self._piece.low,
            comparer.through if stopped else self._piece.high,
            comparer.matched + sum(edit.what == "changed" for edit in comparer.edits),
            self._kept_back,
            self._given_up,
            self._others,
            comparer.one_sided,
            comparer.edits,
            comparer.full,
            why,
            passed,
            dict(self._replayed.found),
            self._filtered,
        )


class RunOffsetTranslator:
    """Translates ascending offsets to the other side's offsets, by the runs."""

    def __init__(self, runs: Sequence[tuple[int, int, int]]) -> None:
        self._runs = runs
        self._at = 0

    def other(self, offset: int) -> int | None:
        while self._at < len(self._runs) and offset >= self._runs[self._at][0] + self._runs[self._at][2]:
            self._at += 1
        if self._at == len(self._runs) or offset < self._runs[self._at][0]:
            return None
        begin, other, _ = self._runs[self._at]
        return other + offset - begin
