"""Merges the small files of a flow, and removes replaced files when nothing reads them any more.

A pass of merges follows a round. What Spark tasks have staged becomes visible by one commit of the manifest,
as the files of a round do (R1, R2). A pass that fails before its commit never stops the flow: it is noted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from runtime.contract.records.manifest import REPLACING, Commit, DataFile
from runtime.contract.spec.files import CompactionSpec, FilesSpec, Format, file_name
from runtime.driver.application import RoundWork, TasksFailed
from runtime.driver.task import run_compact
from runtime.files.compaction import (
    COMPACTION,
    CompactionTicket,
    FileIndex,
    MergedFiles,
    one_pass,
    read_index,
)
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem, ManifestState
from runtime.files.tasks import encode
from runtime.slot.log import log_event

_RETRY_S: Final = 60.0

RunTasks = Callable[[RoundWork, Sequence[bytes]], Awaitable[list[bytes]]]


class CompactionDuty:
    """Chooses what is merged and when, and commits it.

    Without `compact` in the endpoint it merges nothing, and still removes what was replaced before.
    """

    def __init__(self, flow: str, files: FilesSpec, folder: ManifestFolder) -> None:
        self.note = ""  # why the last pass failed, or what it could not merge
        self._flow = flow
        self._files = files
        self._folder = folder
        self._spec = files.compact or CompactionSpec()
        self._merges = files.compact is not None
        self._index: FileIndex | None = None
        self._due_at = time.monotonic()
        # The first file of a merge that can't be done, and why: nothing is wrong where that is empty.
        self._refused: dict[str, str] = {}

    def forget(self) -> None:
        """Discards what is known of the manifest, which is read again."""
        self._index = None

    def apply(self, commit: Commit) -> None:
        """Applies a commit of the flow."""
        if self._index is not None:
            self._index.apply(commit)

    @property
    def is_due(self) -> bool:
        """Whether a pass is to follow the round."""
        return time.monotonic() >= self._due_at

    @property
    def has_more(self) -> bool:
        """Whether another pass is to follow at once."""
        return bool(self._wanted())

    async def stage(self, generation: int, tasks: int, run_tasks: RunTasks) -> list[MergedFiles]:
        """Runs a pass, and returns what its tasks have staged; a failure is noted, and tried again later."""
        try:
            await asyncio.to_thread(self._folder.remove_replaced, self._spec.retention_ms / 1000)
            if self._index is None and self._merges:
                self._index = await asyncio.to_thread(read_index, self._folder, self._spec.below_bytes)
            chosen = one_pass(self._wanted(), tasks)
            if not chosen:
                self._finish()
                return []
            tickets = [CompactionTicket(self._flow, generation, self._files, merges) for merges in chosen]
            texts = await run_tasks(run_compact, [encode(ticket) for ticket in tickets])
            merged = self._taken(texts)
            await asyncio.to_thread(self._folder.check_staged, [merge.file for merge in merged if merge.file])
        except (EndpointUnavailable, ManifestProblem, TasksFailed) as error:
            self.note = f"small files are not merged: {error}"
            self._due_at = time.monotonic() + min(_RETRY_S, self._spec.every_ms / 1000)
            log_event("compaction_failed", key=self._flow, flow=self._flow, error=str(error))
            await asyncio.to_thread(self._folder.clear_staging, generation)
            return []
        return merged

    def _wanted(self) -> list[list[DataFile]]:
        if self._index is None:
            return []
        return [
            merge
            for merge in self._index.merges(self._files.size_bytes)
            if merge[0].path not in self._refused
        ]

    def _finish(self) -> None:
        """Ends the passes until the next interval. What was refused is tried again then."""
        refused = [why for why in self._refused.values() if why]
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        self.note = f"small files are not merged: {refused[0]}{more}" if refused else ""
        self._refused.clear()
        self._due_at = time.monotonic() + self._spec.every_ms / 1000

    def _taken(self, texts: Sequence[bytes]) -> list[MergedFiles]:
        """Returns what was merged, and notes the rest. Raises EndpointUnavailable."""
        results = COMPACTION.results(texts)
        if failed := next((result.error for result in results if result.error), ""):
            raise EndpointUnavailable(failed)
        merged = []
        for merge in chain.from_iterable(result.done for result in results):
            if merge.file is not None:
                merged.append(merge)
            else:
                self._refused[merge.replaced[0].path] = merge.why
        return merged

    async def commit(self, state: ManifestState, base: Commit, merged: Sequence[MergedFiles]) -> None:
        """Commits merged files in the place of others.

        `base` is an empty commit behind `state`. Raises ManifestTaken, ManifestProblem, EndpointUnavailable,
        after which the manifest is read again and the commit is finished where it was written.
        """
        assert self._index is not None
        commit = merging(base, self._files.format, merged)
        self._index.apply(commit)
        commit = replace(commit, small=self._index.small())
        await asyncio.to_thread(self._folder.add, state, commit)
        await asyncio.to_thread(self._folder.publish, commit.files)
        await asyncio.to_thread(self._folder.hide, commit.replaced)
        log_event(
            "files_merged",
            key=self._flow,
            flow=self._flow,
            commit=commit.number,
            files=len(commit.replaced),
            into=len(commit.files),
            bytes=sum(file.size for file in commit.files),
        )


def merging(base: Commit, form: Format, merged: Sequence[MergedFiles]) -> Commit:
    """Returns the commit that puts merged files in the place of others, named by the commit's number."""
    named: dict[str, DataFile] = {}
    replaced: list[str] = []
    for merge in merged:
        assert merge.file is not None
        file, flow = merge.file, base.flow
        name = file_name(flow, file.topic_id, file.partition, file.first, form, base.number)
        path = str(PurePath(merge.replaced[0].path).parent / name)
        if path not in named:  # after a rewind of the source, two merges may begin at one offset
            named[path] = replace(file, path=path)
            replaced += [merged_file.path for merged_file in merge.replaced]
    return replace(base, version=REPLACING, files=list(named.values()), replaced=replaced)
