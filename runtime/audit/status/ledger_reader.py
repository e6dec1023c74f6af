"""Reads one destination for `repl status`: the progress of its flows, and the reports of its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.audit.status.facts import LedgerFacts
from runtime.contract.records.job_status import JobStatusTable
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import offset_maps_at
from runtime.ledger.records import InternalTopicScan

_PARTITION = 0


class StatusLedgerReader:
    """Reads one destination, as long as its cluster stays open. Raises WireError."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self._ledger: Ledger | None = None
        self._status: InternalTopicScan | None = None
        self._reported = JobStatusTable()
        self._read_ms = 0  # when the progress was read: what was written later is not included

    async def refresh(self, flows: Sequence[str], within: float) -> None:
        """Reads reports before the ledger: so a job's report is never newer than the committed progress."""
        await self._read_status(within)
        if self._ledger is None:
            opened = await offset_maps_at(self.cluster, fresh=True)
            self._ledger = opened.ledger if opened is not None else None
        self._read_ms = now_ms()
        if self._ledger is not None:
            await self._ledger.refresh_all(flows, within)

    def facts(self, flows: Sequence[str]) -> LedgerFacts:
        """Decodes what was read. Raises UnreadableRecord."""
        ledger = self._ledger
        return LedgerFacts(
            progress={flow: ledger.all_progress(flow) for flow in flows} if ledger is not None else {},
            generations=ledger.generations(flows) if ledger is not None else {},
            reported=self._reported.copy(),
            read_ms=self._read_ms,
        )

    async def _read_status(self, within: float) -> None:
        if self._status is None:
            topic = (await self.cluster.topics([naming.STATUS], fresh=True))[naming.STATUS]
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            if topic.error is not ErrorCode.NONE:
                raise BrokerError(topic.error, naming.STATUS)
            self._status = InternalTopicScan(self.cluster, naming.STATUS, _PARTITION)
        await self._status.refresh(within)
        self._reported.update(self._status.fold.news())
