"""This module runs a flow from files: each complete line, or row of Parquet, in a folder becomes a record.

The ledger holds how far each file was read, under the file's name and the partition that takes its records. A
task commits records and positions together (R1). The driver looks at the folder, follows files that were
renamed, and stops over files that were truncated or that vanished before they were read (R4).
A position is in bytes of lines, or in rows of Parquet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition, client_id, transactional_ids
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import (
    Gap,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
)
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.route import Router
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import ROUND_S, PositionsLost, RoundFlow, entered, finished
from runtime.driver.flows.shown_files import shown_files
from runtime.driver.flows.start import FlowContext
from runtime.driver.task import run_load
from runtime.files.source.known_files import (
    NO_FINGERPRINT,
    FileProblem,
    KnownFile,
    Listing,
    ignored_notes,
    partition_for,
    reconcile,
)
from runtime.files.source.load import (
    LoadedFile,
    LoadFile,
    LoadResult,
    LoadTicket,
    decode_result,
    encode_ticket,
    moved_progress,
)
from runtime.files.source.sources import source_of
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.ledger.ledger import UndecidedProgress
from runtime.ledger.transaction_writer import fence
from runtime.slot.log import log_event

_FORGET_S: Final = 7 * 86_400.0  # a file that was read and is gone may come back: an unmounted folder does
_LIMIT_S: Final = 60.0  # the topic's settings are read that often
_RETRY_S: Final = 60.0  # a line that can't be read is tried again that often
_UNDECIDED_S, _DECIDED_WITHIN_S = 0.05, 30.0
_DEFAULT_LARGEST: Final = 1_048_588
_LARGEST: Final = "max.message.bytes"
_KEPT_GAPS: Final = 16
_READ_AT_ONCE: Final = 1_000  # files of a task
S = PartitionState


class _Problem(NamedTuple):
    """Why a file is not read behind a position. Another size of the file, or time, makes it tried again."""

    position: int
    size: int
    at: float
    state: PartitionState
    why: str


class _Look(Struct):
    """What one look found: the listing, the states of files, and what the ledger has to hold.

    `unread` are all files that may hold more to read now; `read` are those of the next task.
    """

    listing: Listing
    unread: list[LoadFile] = field(default_factory=list)
    read: list[LoadFile] = field(default_factory=list)
    records: dict[LedgerKey, LedgerValue | None] = field(default_factory=dict)
    states: dict[PartitionKey, tuple[PartitionState, str]] = field(default_factory=dict)
    continued: set[PartitionKey] = field(default_factory=set)
    unclear: bool = False


class FileSourceFlow(RoundFlow):
    """A FileSourceFlow copies the lines or rows of the files in one folder until cancelled."""

    def __init__(self, spec: FlowSpec, job: JobSpec, router: Router, shared: FlowContext) -> None:
        assert spec.lines is not None, "a flow from a cluster is a DriverFlow"
        super().__init__(spec, job, router, shared, spec.lines.every_ms)
        self.lines = spec.lines
        self._files = source_of(spec.lines)
        self._unit = "rows" if spec.lines.format == "parquet" else "bytes"
        self._problems: dict[PartitionKey, _Problem] = {}
        self._limit = (float("-inf"), _DEFAULT_LARGEST)
        self._last_read = ""  # the last name that a task was given
        self._in_doubt = True  # a task may still commit: one of this driver, or of one before it

    def inherit(self, before: DriverFlow) -> None:
        """Continues from the state of an older version of the same flow."""
        super().inherit(before)
        if not isinstance(before, FileSourceFlow) or before.spec.reached != self.spec.reached:
            return
        if (before._files.footers is None) == (self._files.footers is None):
            self._files = before._files

    def _is_lost(self, error: Exception) -> bool:
        return isinstance(error, PositionsLost)

    def _forget(self) -> None:
        self._files.forget()

    async def _round(self) -> bool:
        """Reads what is new once, and returns whether there is more to read at once."""
        shared = self._shared
        await self._source()
        await shared.leadership.ensure()
        if self._in_doubt:
            await self._fence_tasks()
        await shared.ledger.decided(self.name)
        if self._is_superseded():
            return False
        known = shared.ledger.all_progress(self.name)
        if any(isinstance(shared.ledger.progress(key), UndecidedProgress) for key in known):
            await asyncio.sleep(_UNDECIDED_S)
            return True
        if self._ledger_lost and not known:
            raise PositionsLost(
                f"the ledger lost the positions of {self.name}: restore __repl.ledger, or give the flow"
                " another name to read all files anew"
            )
        topic = await self._topic()
        listing = await asyncio.to_thread(self._files.look)
        look = await asyncio.to_thread(self._examine, listing, known, topic)
        if look.records:
            await finished(self._commit(look))
            return True
        self._note(look, known)
        self._started()
        if not look.read:
            return look.unclear
        self._in_doubt = True
        result = await self._load(look.read, topic)
        await shared.ledger.decided(self.name)
        self._take_result(look, result)
        if result.error:
            raise WireError(result.error)
        self._in_doubt = False
        more = any(one.more and one.stopped in ("", "moved", "replaced") for one in result.files)
        return more or len(look.read) < len(look.unread)

    async def _topic(self) -> TopicMetadata:
        """Returns the topic that takes the records. Raises BrokerError where it is not there."""
        self._shared.clusters.invalidate(self.spec.destination)
        topic = (await self._shared.clusters.listing(self.spec.destination)).get(self.lines.topic)
        if topic is None or topic.error is not ErrorCode.NONE or not topic.partitions:
            error = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(error, f"{self.lines.topic} at {self.spec.destination}")
        return topic

    def _examine(
        self, listing: Listing, known: Mapping[PartitionKey, Progress], topic: TopicMetadata
    ) -> _Look:
        """Decides what is read, and what became of the files that were read before (R4)."""
        look, source = _Look(listing), self._files
        keys = {key.topic: key for key in known}
        files = {
            name: KnownFile(name, known[key].position, known[key].source_topic_id, known[key].source_epoch)
            for name, key in keys.items()
        }
        found = reconcile(listing.files, files, lambda name, one: source.holds(listing.files, name, one))
        moved_from = {keys[one.name] for one, _ in found.moved}
        for one, name in found.moved:
            self._follow_move(look, keys[one.name], name, known[keys[one.name]])
        for key in moved_from:
            look.records.setdefault(ProgressKey(key), None)
        displaced = {one.name for one in (*found.replaced, *found.vanished)}
        for one in (*found.replaced, *found.vanished):
            self._displaced(look, keys[one.name], one, known[keys[one.name]], there=one.name in listing.files)
        wanted = [
            self._to_read(listing, name, partition_for(name, len(topic.partitions)), 0, NO_FINGERPRINT)
            for name in found.new
        ]
        for name, one in files.items():
            if name in listing.files and name not in displaced and keys[name] not in moved_from:
                source.gone_since.pop(name, None)
                if not self._recreated(look, keys[name], known[keys[name]], topic):
                    partition = keys[name].partition
                    wanted.append(self._to_read(listing, name, partition, one.position, one.fingerprint))
        for load in wanted:
            if problem := listing.problems.get(load.name):
                self._note_problem(look, load, problem)
        wanted = [one for one in wanted if one.name not in listing.problems]
        look.unread = [one for one in wanted if self._has_more(one)]
        look.read = self._next_ones(look.unread)
        source.unclear = displaced
        unknown = displaced | listing.problems.keys()
        source.sizes |= {name: state.size for name, state in listing.files.items() if name not in unknown}
        return look

    def _note_problem(self, look: _Look, one: LoadFile, problem: FileProblem) -> None:
        """Notes why nothing of a file is read. One that is not complete is no lag, as an incomplete line."""
        states = {"incomplete": S.CAUGHT_UP, "corrupt": S.RECORD_CORRUPT, "unreadable": S.RETRYING}
        look.states[PartitionKey(self.name, one.name, one.partition)] = states[problem.kind], problem.why

    @staticmethod
    def _to_read(listing: Listing, name: str, partition: int, position: int, mark: bytes) -> LoadFile:
        state = listing.files[name]
        return LoadFile(name, partition, position, mark, state.size, state.version)

    def _next_ones(self, unread: Sequence[LoadFile]) -> list[LoadFile]:
        """Returns the files of the next task: by their names, behind those of the task before it."""
        if len(unread) <= _READ_AT_ONCE:
            return list(unread)
        ordered = sorted(unread, key=lambda one: (one.name <= self._last_read, one.name))[:_READ_AT_ONCE]
        self._last_read = ordered[-1].name
        return ordered

    def _has_more(self, one: LoadFile) -> bool:
        """Returns whether a file may hold records behind its position that can be read now."""
        size = one.size
        problem = self._problems.get(PartitionKey(self.name, one.name, one.partition))
        if problem is None or (problem.position, problem.size) != (one.position, size):
            return size > one.position
        waits = problem.state is S.CAUGHT_UP or time.monotonic() - problem.at < _RETRY_S
        return size > one.position and not waits

    def _recreated(self, look: _Look, key: PartitionKey, progress: Progress, topic: TopicMetadata) -> bool:
        """Returns whether the file waits, because its topic was made again without the records (R4)."""
        if not is_other_topic(progress.destination_topic_id, topic.id):
            return False
        if self.spec.on_data_loss != "skip" and key not in self.accepted:
            look.states[key] = (
                S.RECREATED,
                f"{self.lines.topic} was deleted and made again, without its records",
            )
        else:
            look.continued.add(key)
            after = replace(progress, destination_topic_id=topic.id, destination_end=0, written_at=_now_ms())
            look.records[ProgressKey(key)] = after
        return True

    def _follow_move(self, look: _Look, before: PartitionKey, name: str, progress: Progress) -> None:
        """Notes that a file has another name. Its records stay in their partition."""
        after = PartitionKey(self.name, name, before.partition)
        look.records[ProgressKey(after)] = replace(progress, written_at=_now_ms())
        self._files.sizes.pop(before.topic, None)
        log_event(
            "file_renamed",
            key=f"{self.name} {before.topic}",
            flow=self.name,
            file=before.topic,
            to=name,
            position=progress.position,
            decision="continue under the new name",
        )

    def _displaced(
        self, look: _Look, key: PartitionKey, one: KnownFile, progress: Progress, *, there: bool
    ) -> None:
        """Decides about a file whose bytes no file holds any more.

        Files of sub-folders that are not looked at any more keep their positions.
        """
        source, name = self._files, one.name
        if not source.covers(name):
            return
        if name not in source.unclear:
            look.unclear = True
            return
        unread = source.sizes.get(name, one.position) - one.position
        if not there and unread <= 0:
            since = source.gone_since.setdefault(name, time.monotonic())
            if time.monotonic() - since > _FORGET_S:
                look.records[ProgressKey(key)] = None
            return
        if there and name in source.gone_since:
            self._read_anew(look, key, progress)
            return
        if there:
            state = S.FILE_TRUNCATED
            why = f"it does not hold the {one.position:,} {self._unit} that were read: records may be lost"
        else:
            state = S.FILE_VANISHED
            why = f"it is gone, and its last {unread:,} {self._unit} were not read"
        if self.spec.on_data_loss != "skip" and key not in self.accepted:
            look.states[key] = state, why
            return
        look.continued.add(key)
        source.sizes.pop(name, None)
        gap = Gap(one.position, one.position + max(unread, 0), "lost", _now_ms())
        if there:
            again = _from_the_beginning(progress)
            look.records[ProgressKey(key)] = replace(again, gaps=(*progress.gaps, gap)[-_KEPT_GAPS:])
        else:
            look.records[ProgressKey(key)] = None
        log_event(
            "file_loss_accepted",
            key=f"{self.name} {name}",
            flow=self.name,
            file=name,
            state=state,
            position=one.position,
            decision="read it from its beginning" if there else "forget it",
        )

    def _read_anew(self, look: _Look, key: PartitionKey, progress: Progress) -> None:
        """Notes that a new file has the name of one that was read to its end and then deleted."""
        self._files.gone_since.pop(key.topic, None)
        self._files.sizes.pop(key.topic, None)
        look.records[ProgressKey(key)] = _from_the_beginning(progress)
        log_event(
            "file_name_reused",
            key=f"{self.name} {key.topic}",
            flow=self.name,
            file=key.topic,
            position=progress.position,
            decision="read the new file from its beginning",
        )

    async def _commit(self, look: _Look) -> None:
        """Commits what became of files. No task of an earlier round writes any more after the fence (R3)."""
        shared = self._shared
        await shared.leadership.ensure()
        await self._fence_tasks()
        await shared.writer.commit(look.records)
        await self._decided(look.records)
        self._files.forget()
        self.clear_accepted_loss(look.continued)

    async def _fence_tasks(self) -> None:
        """Fences the tasks of earlier rounds, so that what they committed is decided. Raises WireError.

        A task that failed, or whose last answer was lost, may still commit. A file that got another name
        meanwhile would be read again from a position that is no longer true (fencing 5).
        """
        if stuck := await fence(self._shared.destination, [self._transactional_id]):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, stuck[0])
        self._in_doubt = False

    async def _decided(self, records: Collection[LedgerKey]) -> None:
        """Waits until the markers of the transaction are written. Raises WireError."""
        ledger, deadline = self._shared.ledger, time.monotonic() + _DECIDED_WITHIN_S
        keys = [key.of for key in records if isinstance(key, ProgressKey)]
        await ledger.refresh(self.name)
        while any(isinstance(ledger.progress(key), UndecidedProgress) for key in keys):
            if time.monotonic() > deadline:
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the positions of {self.name}")
            await asyncio.sleep(_UNDECIDED_S)
            await ledger.refresh(self.name)

    @property
    def _transactional_id(self) -> str:
        return transactional_ids(self._job.job, 0, self.name, self._job.copy)[0]

    async def _largest(self) -> int:
        """Returns the topic's largest batch, at most a minute old. Raises WireError, ClientSettingsError."""
        read_at, largest = self._limit
        if time.monotonic() - read_at > _LIMIT_S:
            admin = await self._shared.clusters.admin(self.spec.destination)
            settings = (await admin.settings([self.lines.topic])).get(self.lines.topic)
            found = settings.effective(_LARGEST) if settings is not None else None
            largest = int(found or _DEFAULT_LARGEST)
            self._limit = time.monotonic(), largest
        return largest

    async def _load(self, files: Sequence[LoadFile], topic: TopicMetadata) -> LoadResult:
        """Runs a round's task. Raises TasksFailed, WireError."""
        assert self.generation is not None
        ticket = LoadTicket(
            flow=self.name,
            generation=self.generation,
            transactional_id=self._transactional_id,
            destination=self.spec.destination,
            cluster=self._job.clusters[self.spec.destination],
            client_id=client_id(self._job.job, 0),
            lines=self.lines,
            topic_id=topic.id,
            max_message_bytes=await self._largest(),
            files=list(files),
            round_s=ROUND_S,
            rate=self.spec.rate_limit,
        )
        (text,) = await self._run_tasks(run_load, [encode_ticket(ticket)])
        result = decode_result(text)
        self._worker = result.host, result.process
        return result

    def _take_result(self, look: _Look, result: LoadResult) -> None:
        """Notes how far the files were read, and why some are not read further."""
        partitions = {one.name: one.partition for one in look.read}
        for one in result.files:
            key = PartitionKey(self.name, one.name, partitions[one.name])
            self._files.sizes[one.name] = max(one.size, one.position)
            self._problems.pop(key, None)
            if (problem := _problem_of(one)) is not None:
                self._problems[key] = _Problem(one.position, one.size, time.monotonic(), *problem)
            if one.stopped == "replaced":
                self._files.recheck(one.name)
        self._stats = replace(
            self._stats,
            records=self._stats.records + sum(one.records for one in result.files),
            bytes=self._stats.bytes + sum(one.bytes for one in result.files),
            commits=self._stats.commits + 1,
        )
        self._note(look, self._shared.ledger.all_progress(self.name))

    def _note(self, look: _Look, known: Mapping[PartitionKey, Progress]) -> None:
        """Notes the states of all files that are there, and of those that someone must decide about."""
        now_ms = _now_ms()
        sizes = {name: state.size for name, state in look.listing.files.items()}
        states: dict[PartitionKey, PartitionStatus] = {}
        waiting = {}
        for one in look.unread:
            key = PartitionKey(self.name, one.name, one.partition)
            waiting[key] = max(one.size - known[key].position if key in known else one.size, 0)
        self._problems = {key: one for key, one in self._problems.items() if key.topic in sizes}
        read = {key: progress.written_at for key, progress in known.items() if key.topic in sizes}
        shown, not_shown = shown_files(look.states.keys() | self._problems, waiting, read, self._unit)
        for key in sorted(shown):
            progress = known.get(key)
            position = progress.position if progress is not None else 0
            size = max(self._files.sizes.get(key.topic, 0), sizes.get(key.topic, 0))
            state, why = self._state_of(look, key, position, size)
            size = position if state is S.CAUGHT_UP else size  # an incomplete line is not to be copied yet
            before = self._states.get(key) or PartitionStatus(*key, S.STARTING, now_ms)
            states[key] = replace(
                entered(before, state, why),
                position=position,
                destination_end=progress.destination_end if progress is not None else -1,
                source_start=0,
                source_end=size,
                source_high_watermark=size,
                last_fetch_ms=now_ms,
                last_commit_ms=progress.written_at if progress is not None else 0,
                last_timestamp=progress.last_timestamp if progress is not None else -1,
                records=progress.records if progress is not None else 0,
                bytes=progress.bytes if progress is not None else 0,
            )
        self._states = states
        self.partitions = {key: AssignedPartition(*key, destination_topic=self.lines.topic) for key in states}
        self._notes = (*ignored_notes(look.listing.ignored, self._files.place), *not_shown)

    def _state_of(
        self, look: _Look, key: PartitionKey, position: int, size: int
    ) -> tuple[PartitionState, str]:
        if key in look.states:
            return look.states[key]
        problem = self._problems.get(key)
        if problem is not None and problem.position == position:
            return problem.state, problem.why
        return (S.COPYING if size > position else S.CAUGHT_UP), ""


def _problem_of(one: LoadedFile) -> tuple[PartitionState, str] | None:
    """Returns the state of a file that is not read further; None where its next lines are awaited."""
    match one.stopped:
        case "corrupt":
            return S.RECORD_CORRUPT, one.why
        case "too_large":
            return S.RECORD_TOO_LARGE, one.why
        case "unreadable":
            return S.RETRYING, one.why
        case "moved" | "replaced":
            return None
    if one.size > one.position and not one.more:
        left = one.size - one.position
        return S.CAUGHT_UP, f"its last line is not complete: {left:,} bytes wait for a line feed"
    return None


def _from_the_beginning(progress: Progress) -> Progress:
    """Returns the progress of a file of which nothing was read."""
    return moved_progress(progress, 0, NO_FINGERPRINT, -1, progress.destination_end, _now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)
