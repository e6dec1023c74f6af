"""Recovery after a failed transaction takes a new producer epoch and returns to the committed positions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.kafka.transactions import init_producer_id
from runtime.slot.errors import ErrorAction, ErrorDecision, ErrorPhase, decide
from runtime.slot.log import log_event
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.owner import LaneFlow, SlotMustEnd
from runtime.slot.write.transaction import Transaction, TransactionFailure

if TYPE_CHECKING:
    from runtime.slot.write.lane import Lane

_DECISIONS = {
    ErrorAction.RETRY: "abort",
    ErrorAction.ABORT: "abort",
    ErrorAction.SUSPECT: "abort, and try the partition in a lane of its own",
    ErrorAction.STOP: "abort, and stop the partition",
    ErrorAction.INSPECT: "abort, and inspect the partition's topics",
    ErrorAction.STUCK: "abort",
    ErrorAction.ASK_LEDGER: "ask the ledger whether it was committed",
    ErrorAction.END_SLOT: "end the slot: another writer may have fenced it",
}
STUCK_AFTER_S = 3.0
_MAX_PAUSE_S = 3.0


class LaneRecovery:
    """A recovery initialises a lane's transactional id at first and after every abort (fencing 1)."""

    def __init__(
        self, cluster: KafkaCluster, transactional_id: str, transaction_timeout_ms: int, owner: LaneFlow
    ) -> None:
        self.identity = ProducerIdentity(-1, -1)
        self.failures = 0
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._owner = owner
        self._registered = -1

    async def begin(self) -> ProducerIdentity:
        """Initialises the transactional id, and registers a new producer id as this flow's.

        Raises WireError.
        """
        identity = await init_producer_id(
            self._cluster, self._transactional_id, self._transaction_timeout_ms, within=STUCK_AFTER_S
        )
        if identity.producer_id != self._registered:
            await self._owner.register(identity)
            self._registered = identity.producer_id
        self.identity = identity
        return identity

    async def after(self, lane: Lane, tx: Transaction, failure: TransactionFailure) -> None:
        """Recovers after a failure: the transaction aborts and its partitions rewind.

        Where the response to the end was lost, the ledger decides whether it was committed (fencing 5).
        Raises SlotMustEnd where another writer may have fenced this one.
        """
        self.failures += 1
        decision = by_failure(failure)
        log_event(
            "transaction_failed",
            key=self._transactional_id,
            level=logging.WARNING,
            transactional_id=self._transactional_id,
            epoch=self.identity.epoch,
            phase=failure.phase,
            error=str(failure),
            partitions=len(tx.parts),
            blamed=", ".join(copy.label for copy in failure.copies[:5]),
            failures=self.failures,
            decision=_DECISIONS[decision.do],
        )
        if decision.do is ErrorAction.END_SLOT:
            raise SlotMustEnd(f"{self._transactional_id}: {failure}")
        copies = list(tx.parts)
        ambiguous = decision.do is ErrorAction.ASK_LEDGER
        if not ambiguous:
            self._rewind_aborted(lane, tx, failure, decision)
        if decision.refresh:
            await self._refresh({copy.at.topic for copy in copies} | lane.topics())
        await self.begin_again(lane)
        if ambiguous:
            lost = await self._ask_ledger(lane, tx)
            self._owner.failed(lane, failure, decision, lost)
        await self._confirm(lane)
        if self.failures > 1:
            await asyncio.sleep(min(0.05 * 2 ** min(self.failures, 6), 2.0))

    def _rewind_aborted(
        self, lane: Lane, tx: Transaction, failure: TransactionFailure, decision: ErrorDecision
    ) -> None:
        """Rewinds the partitions of a transaction that can only end aborted.

        This happens before the new epoch is initialised: that may take as long as a transaction marker waits.
        """
        copies = list(tx.parts)
        for copy in copies:
            copy.rewind()
        tx.release_partitions()
        self._owner.rewound(copies)
        self._owner.failed(lane, failure, decision, copies)
        lane.ended.set()

    async def begin_again(self, lane: Lane) -> None:
        """Retries the initialisation of the transactional id until it succeeds.

        While the id waits for a transaction marker, its partitions move to other lanes (fencing 4). Those of
        a transaction whose end is not known stay: it may still commit them.
        """
        attempt = 0
        while True:
            try:
                lane.begin_epoch(await self.begin())
                break
            except WireError as error:
                match decide(ErrorPhase.INIT, error).do:
                    case ErrorAction.END_SLOT:
                        raise SlotMustEnd(f"{self._transactional_id}: {error}") from error
                    case ErrorAction.STUCK:
                        lane.is_stuck = True
            if lane.is_stuck:
                self._owner.stuck(lane)
            attempt += 1
            await asyncio.sleep(min(0.1 * 2 ** min(attempt, 5), _MAX_PAUSE_S))
        if lane.is_stuck:
            lane.is_stuck = False
            self._owner.freed(lane)

    async def _confirm(self, lane: Lane) -> None:
        """Reads the ledger again until it answers, because the new epoch may have fenced another writer.

        See fencing 3.
        """
        while True:
            try:
                return await self._owner.confirm(lane)
            except WireError:
                await asyncio.sleep(_MAX_PAUSE_S / 4)

    async def _refresh(self, topics: set[str]) -> None:
        """Refreshes the outdated metadata; an error is ignored, because the next attempt reports it again."""
        with contextlib.suppress(WireError):
            await self._cluster.topics(topics, fresh=True)

    async def _ask_ledger(self, lane: Lane, tx: Transaction) -> list[PartitionCopy]:
        """Reads from the ledger whether a transaction was committed, after the response to its end was lost.

        Returns the partitions that were aborted (fencing 5).
        """
        answers = [(entry, await self._owner.decided(entry.copy.key)) for entry in tx.entries]
        settled = {entry.copy: entry for entry, progress in answers if progress == entry.progress}
        for entry in settled.values():
            lane.settle(entry)
        copies = [*tx.parts, *tx.idle]
        for copy in copies:
            copy.rewind()
        tx.release_partitions()
        if settled:
            self._owner.committed(lane, tx, [*settled.values()])
        self._owner.rewound(copies)
        lost = [copy for copy in tx.parts if copy not in settled]
        log_event(
            "transaction_decided",
            key=self._transactional_id,
            transactional_id=self._transactional_id,
            committed=len(settled),
            aborted=len(lost),
        )
        return lost


def by_failure(failure: TransactionFailure) -> ErrorDecision:
    """Returns the decision on a failure.

    An acknowledged offset that can't be true has no error code: its partition is inspected (R4).
    """
    if failure.error is None:
        return ErrorDecision(ErrorAction.INSPECT, refresh=True)
    return decide(failure.phase, failure.error)
