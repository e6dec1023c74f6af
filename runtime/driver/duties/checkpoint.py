"""Writes a checkpoint of a flow's manifest every some commits, and removes older ones.

A checkpoint that can't be written never stops the flow: it is noted, and readers read more commits meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgspec.structs import replace

from runtime.contract.records.manifest import Commit
from runtime.files.checkpoint import write_checkpoint
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem, ManifestState
from runtime.slot.log import log_event

EVERY: Final = 256  # commits
_KEPT_S: Final = 3_600.0  # an older checkpoint, for those who are reading it
_RETRY_S: Final = 60.0


class CheckpointDuty:
    """Decides when a checkpoint is due, and commits it. `every` is in commits."""

    def __init__(self, flow: str, folder: ManifestFolder, every: int = EVERY) -> None:
        self.note = ""  # why the last one failed
        self._flow = flow
        self._folder = folder
        self._every = every
        self._not_before = time.monotonic()

    def is_due(self, state: ManifestState) -> bool:
        """Whether a checkpoint is to follow the last commit."""
        if state.last is None or time.monotonic() < self._not_before:
            return False
        before = state.checkpoint
        return state.last.number - (before.number if before is not None else 0) >= self._every

    async def run(self, state: ManifestState, base: Commit) -> None:
        """Writes a checkpoint and commits it. `base` is an empty commit behind `state`.

        Raises ManifestTaken, and EndpointUnavailable where the commit may have been written: then the
        manifest is read again.
        """
        try:
            ref = await asyncio.to_thread(write_checkpoint, self._folder, state)
        except (EndpointUnavailable, ManifestProblem) as error:
            self.note = f"no checkpoint of the manifest is written: {error}"
            self._not_before = time.monotonic() + _RETRY_S
            log_event("checkpoint_failed", key=self._flow, flow=self._flow, error=str(error))
            return
        # All positions: a start reads no commit before this one.
        commit = replace(base, checkpoint=ref, complete=True)
        await asyncio.to_thread(self._folder.add, state, commit)
        removed = await self._tidy()
        log_event(
            "checkpoint_written",
            key=self._flow,
            flow=self._flow,
            commit=ref.number,
            removed=removed,
        )

    async def _tidy(self) -> int:
        """Removes older checkpoints, and returns how many files these were."""
        try:
            removed = await asyncio.to_thread(self._folder.remove_checkpoints, _KEPT_S)
        except (EndpointUnavailable, ManifestProblem) as error:
            self.note = f"older checkpoints of the manifest are not removed: {error}"
            return 0
        self.note = ""
        return removed
