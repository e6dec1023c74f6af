"""Copies one partition again, exactly once: what a replay and a restore have in common."""

from __future__ import annotations

import asyncio
from typing import Final

from runtime.batch.schema_ids import SchemaMissing
from runtime.kafka.errors import WireError
from runtime.kafka.timing import RetryDeadline
from runtime.ledger.transaction_writer import is_fenced, may_succeed_later
from runtime.replay.request import CopyStopped

PAUSE_S: Final = 0.5
_AFTER_SCHEMAS: Final = "register the schema at the destination, or make both registries answer, then go on"


class RepeatedCopy:
    """Copies one partition under one transactional id, so that it fences earlier copies of it (R3).

    After a failure it starts again from the committed state (fencing 1), while it makes progress: a copy that
    was killed continues in the same way. `records` counts what it copied, `progress` grows with each commit.
    `note` says what of it was not checked.
    """

    command: str  # whose user sees the lines that it shows
    noun: str
    records = progress = 0
    note = ""

    async def run(self, within_s: float) -> None:
        """Copies all records. Raises CopyStopped where nothing more is committed for `within_s`."""
        timeout = RetryDeadline(within_s)
        while True:
            try:
                await self._attempt()
                return
            except WireError as error:
                timeout.advance(self.progress)
                if timeout.over() or not self._may_succeed_later(error):
                    fenced = f"another {self.noun} of it began, or its transaction took too long"
                    raise CopyStopped(fenced if is_fenced(error) else str(error)) from error
            except SchemaMissing as missing:
                timeout.advance(self.progress)
                if timeout.over():
                    raise CopyStopped(f"{missing}; {_AFTER_SCHEMAS}") from missing
            await asyncio.sleep(PAUSE_S)

    async def _attempt(self) -> None:
        """Copies what the ledger does not have yet. Raises WireError, CopyStopped."""
        raise NotImplementedError

    def _may_succeed_later(self, error: WireError) -> bool:
        return may_succeed_later(error)
