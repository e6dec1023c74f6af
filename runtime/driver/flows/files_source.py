"""This module reads files for rounds: each complete line, or row of Parquet, in a folder becomes a record.

It looks at the folder, follows files that were renamed, and stops over files that were truncated or that
vanished before they were read (R4). A position is in bytes of lines, or in rows of Parquet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from runtime.contract.records.advance import start_over
from runtime.contract.records.job_status import Finding, PartitionState
from runtime.contract.records.ledger import Gap, PartitionKey, Progress
from runtime.contract.spec.naming import is_other_topic
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import Look, RecordSource, SourceRange
from runtime.driver.flows.topic_sink import TopicSink
from runtime.files.source.known_files import (
    NO_FINGERPRINT,
    KnownFile,
    Listing,
    partition_for,
    reconcile,
)
from runtime.files.source.load import LoadFile
from runtime.files.source.sources import source_of
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.timing import now_ms
from runtime.slot.log import log_event

_FORGET_S: Final = 7 * 86_400.0  # a file that was read and is gone may come back: an unmounted folder does
_RETRY_S: Final = 60.0  # a line that can't be read is tried again that often
_KEPT_GAPS: Final = 16
_READ_AT_ONCE: Final = 1_000  # files of a task
SHOWN: Final = 2_000  # files: a source may have any number of them
S = PartitionState


class _FilesLook(Look[Progress]):
    """What one look found: the listing, and the states of files that someone must decide about.

    `unread` are all files that may hold more to read now; `read` are those of the next task.
    """

    listing: Listing = field(default_factory=Listing)
    unread: list[LoadFile] = field(default_factory=list)
    states: dict[PartitionKey, Finding] = field(default_factory=dict)


class FilesSource(RecordSource[Progress]):
    """Reads the lines or rows of the files in one folder."""

    def __init__(self, flow: DriverFlow, sink: TopicSink) -> None:
        self._flow = flow
        self._sink = sink
        self._files = source_of(sink.lines)
        # The position and size at which files are not read further, why, and since when. Another size, or
        # time, has them read.
        self._stopped: dict[PartitionKey, tuple[int, int, Finding, float]] = {}
        self._last_read = ""  # the last name that a task was given

    def inherit(self, before: RecordSource[Any]) -> None:
        assert isinstance(before, FilesSource), "a copier inherits from a source of its own kind"
        same = before._flow.spec.reached == self._flow.spec.reached
        if same and (before._files.footers is None) == (self._files.footers is None):
            self._files = before._files

    def forget(self) -> None:
        self._files.forget()

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the files with the topic that takes their records: each file stands for a topic."""
        return dict.fromkeys(topics, self._sink.lines.topic)

    async def look(self, cluster: KafkaCluster, positions: Mapping[PartitionKey, Progress]) -> Look[Progress]:
        listing = await asyncio.to_thread(self._files.look)
        look = await asyncio.to_thread(self._examine, listing, positions)
        if look.moved is None:
            self._show(look, positions)
        return look

    def _examine(self, listing: Listing, progress_by_key: Mapping[PartitionKey, Progress]) -> _FilesLook:
        """Decides what is read, and what became of the files that were read before (R4)."""
        look, source = _FilesLook(listing=listing), self._files
        keys = {key.topic: key for key in progress_by_key}
        files = {name: KnownFile.of(name, progress_by_key[key]) for name, key in keys.items()}
        became = reconcile(listing.files, files, lambda name, file: source.holds(listing.files, name, file))
        moved_from = {keys[file.name] for file, _ in became.moved}
        for file, name in became.moved:
            self._follow_move(look, keys[file.name], name, progress_by_key[keys[file.name]])
        for key in moved_from:
            if key not in (look.moved or {}):
                look.move(key, None)
        displaced = {file.name for file in (*became.replaced, *became.vanished)}
        for file in (*became.replaced, *became.vanished):
            self._displaced(
                look,
                keys[file.name],
                file,
                progress_by_key[keys[file.name]],
                there=file.name in listing.files,
            )
        partitions = len(self._sink.topic.partitions)
        wanted = [
            self._to_read(listing, name, partition_for(name, partitions), 0, NO_FINGERPRINT)
            for name in became.new
        ]
        for name, file in files.items():
            if name in listing.files and name not in displaced and keys[name] not in moved_from:
                source.gone_since.pop(name, None)
                if not self._recreated(look, keys[name], progress_by_key[keys[name]]):
                    partition = keys[name].partition
                    wanted.append(self._to_read(listing, name, partition, file.position, file.fingerprint))
        for load in wanted:
            if problem := listing.problems.get(load.name):
                look.states[PartitionKey(self._flow.name, load.name, load.partition)] = problem
        wanted = [file for file in wanted if file.name not in listing.problems]
        look.unread = [file for file in wanted if self._has_more(file)]
        look.read = self._next_files(look.unread)
        source.unclear = displaced
        unknown = displaced | listing.problems.keys()
        source.sizes |= {name: state.size for name, state in listing.files.items() if name not in unknown}
        return look

    @staticmethod
    def _to_read(listing: Listing, name: str, partition: int, position: int, mark: bytes) -> LoadFile:
        state = listing.files[name]
        return LoadFile(name, partition, position, mark, state.size, state.version)

    def _next_files(self, unread: Sequence[LoadFile]) -> list[LoadFile]:
        """Returns the files of the next task: by their names, behind those of the task before it."""
        if len(unread) <= _READ_AT_ONCE:
            return list(unread)
        ordered = sorted(unread, key=lambda file: (file.name <= self._last_read, file.name))[:_READ_AT_ONCE]
        self._last_read = ordered[-1].name
        return ordered

    def _has_more(self, file: LoadFile) -> bool:
        """Returns whether a file may hold records behind its position that can be read now."""
        match self._stopped.get(PartitionKey(self._flow.name, file.name, file.partition)):
            case position, size, problem, since if (position, size) == (file.position, file.size):
                waits = problem.state is S.CAUGHT_UP or time.monotonic() - since < _RETRY_S
            case _:
                waits = False
        return file.size > file.position and not waits

    def _recreated(self, look: _FilesLook, key: PartitionKey, progress: Progress) -> bool:
        """Returns whether the file waits, because its topic was made again without the records (R4)."""
        topic = self._sink.topic
        if not is_other_topic(progress.destination_topic_id, topic.id):
            return False
        if self._flow.spec.on_data_loss != "skip" and key not in self._flow.accepted:
            why = f"{self._sink.lines.topic} was deleted and made again, without its records"
            look.states[key] = Finding(S.RECREATED, why)
        else:
            look.continued.add(key)
            again = KnownFile.of(key.topic, progress).into(start_over(progress, progress.position, 0))
            look.move(key, replace(again, destination_topic_id=topic.id, written_at=now_ms()))
        return True

    def _follow_move(self, look: _FilesLook, before: PartitionKey, name: str, progress: Progress) -> None:
        """Notes that a file has another name. Its records stay in their partition."""
        after = PartitionKey(self._flow.name, name, before.partition)
        look.move(after, replace(progress, written_at=now_ms()))
        self._files.sizes.pop(before.topic, None)
        log_event(
            "file_renamed",
            key=f"{self._flow.name} {before.topic}",
            flow=self._flow.name,
            file=before.topic,
            to=name,
            position=progress.position,
            decision="continue under the new name",
        )

    def _displaced(
        self, look: _FilesLook, key: PartitionKey, file: KnownFile, progress: Progress, *, there: bool
    ) -> None:
        """Decides about a file whose bytes no file holds any more.

        Files of sub-folders that are not looked at any more keep their positions.
        """
        source, name, unit = self._files, file.name, self._sink.lines.unit
        if not source.covers(name):
            return
        if name not in source.unclear:
            look.again = True
            return
        unread = source.sizes.get(name, file.position) - file.position
        if not there and unread <= 0:
            since = source.gone_since.setdefault(name, time.monotonic())
            if time.monotonic() - since > _FORGET_S:
                look.move(key, None)
            return
        if there and name in source.gone_since:
            self._read_anew(look, key, progress)
            return
        if there:
            state = S.FILE_TRUNCATED
            why = f"it does not hold the {file.position:,} {unit} that were read: records may be lost"
        else:
            state = S.FILE_VANISHED
            why = f"it is gone, and its last {unread:,} {unit} were not read"
        if self._flow.spec.on_data_loss != "skip" and key not in self._flow.accepted:
            look.states[key] = Finding(state, why)
            return
        look.continued.add(key)
        source.sizes.pop(name, None)
        gap = Gap(file.position, file.position + max(unread, 0), "lost", now_ms())
        if there:
            again = _from_the_beginning(progress)
            look.move(key, replace(again, gaps=(*progress.gaps, gap)[-_KEPT_GAPS:]))
        else:
            look.move(key, None)
        log_event(
            "file_loss_accepted",
            key=f"{self._flow.name} {name}",
            flow=self._flow.name,
            file=name,
            state=state,
            position=file.position,
            decision="read it from its beginning" if there else "forget it",
        )

    def _read_anew(self, look: _FilesLook, key: PartitionKey, progress: Progress) -> None:
        """Begins a new file, which has the name of one that was read completely and then deleted."""
        self._files.gone_since.pop(key.topic, None)
        self._files.sizes.pop(key.topic, None)
        look.move(key, _from_the_beginning(progress))
        log_event(
            "file_name_reused",
            key=f"{self._flow.name} {key.topic}",
            flow=self._flow.name,
            file=key.topic,
            position=progress.position,
            decision="read the new file from its beginning",
        )

    def take(
        self, look: Look[Progress], results: Sequence[Any], positions: Mapping[PartitionKey, Progress]
    ) -> bool:
        """Notes how far the files were read, and why some are not read further."""
        assert isinstance(look, _FilesLook), "it is this source's own look"
        done: LoadFile
        for done in results:
            key = PartitionKey(self._flow.name, done.name, done.partition)
            self._files.sizes[done.name] = max(done.size, done.position)
            self._stopped.pop(key, None)
            if done.outdated:
                self._files.recheck(done.name)
            elif done.problem is None and done.size > done.position and not done.more:
                left = done.size - done.position
                why = f"its last line is not complete: {left:,} bytes wait for a line feed"
                done.problem = Finding(S.CAUGHT_UP, why)
            if done.problem is not None:
                self._stopped[key] = done.position, done.size, done.problem, time.monotonic()
        self._show(look, positions)
        more = any(done.more and done.problem is None for done in results)
        return more or len(look.read) < len(look.unread)

    def _show(self, look: _FilesLook, progress_by_key: Mapping[PartitionKey, Progress]) -> None:
        """Shows the states of the files that are there, and of those that someone must decide about."""
        sizes = {name: state.size for name, state in look.listing.files.items()}
        waiting = {}
        for file in look.unread:
            key = PartitionKey(self._flow.name, file.name, file.partition)
            waiting[key] = max(
                file.size - progress_by_key[key].position if key in progress_by_key else file.size, 0
            )
        self._stopped = {key: stopped for key, stopped in self._stopped.items() if key.topic in sizes}
        read = {key: progress.written_at for key, progress in progress_by_key.items() if key.topic in sizes}
        shown, not_shown = shown_files(
            look.states.keys() | self._stopped, waiting, read, self._sink.lines.unit
        )
        look.shown.clear()
        for key in sorted(shown):
            position = progress_by_key[key].position if key in progress_by_key else 0
            size = max(self._files.sizes.get(key.topic, 0), sizes.get(key.topic, 0))
            state, why = self._state_of(look, key, position, size)
            size = position if state is S.CAUGHT_UP else size  # an incomplete line is not to be copied yet
            look.shown[key] = SourceRange(0, size, state, why)
        ignored = sorted(look.listing.ignored.items())
        look.notes = [
            *(f"{count:,} {why} in the {self._files.place} are not read" for why, count in ignored),
            *not_shown,
        ]

    def _state_of(self, look: _FilesLook, key: PartitionKey, position: int, size: int) -> Finding:
        if key in look.states:
            return look.states[key]
        match self._stopped.get(key):
            case stopped_at, _, problem, _ if stopped_at == position:
                return problem
        return Finding(S.COPYING if size > position else S.CAUGHT_UP, "")


def _from_the_beginning(progress: Progress) -> Progress:
    """Returns the progress of a file of which nothing was read."""
    again = start_over(progress, 0, progress.destination_end)
    return replace(again, source_topic_id=NO_FINGERPRINT, written_at=now_ms())


def shown_files(
    stopped: Collection[PartitionKey],
    waiting: Mapping[PartitionKey, int],
    read: Mapping[PartitionKey, int],
    unit: str,
    most: int = SHOWN,
) -> tuple[set[PartitionKey], list[str]]:
    """Returns the files that are shown, and notes about the others.

    Those that someone must decide about come first, then those with the most to read, then those that were
    read last. `waiting` has what is left to read, in `unit`, and `read` when each known file was read last.
    """
    every = {*stopped, *waiting, *read}
    if len(every) <= most:
        return every, []
    behind = sorted(waiting, key=lambda key: (-waiting[key], key))
    newest = nlargest(most, read, key=lambda key: (read[key], key))
    shown = set(islice(dict.fromkeys((*sorted(stopped), *behind, *newest)), most))
    left = [size for key, size in waiting.items() if size and key not in shown]
    note = f"{len(every) - len(shown):,} more files are not shown"
    if left:
        note += f", and {sum(left):,} {unit} of {len(left):,} of them are not read yet"
    return shown, [note]
