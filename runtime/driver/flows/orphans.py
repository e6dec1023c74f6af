"""This module records, before a failback, what the source of the original flow still holds as orphaned."""

from __future__ import annotations

from runtime.driver.flows.takeover import FlowContext
from runtime.ledger.orphans import OrphanMarks, leave_orphans

FAILBACK = "failback"


async def orphan_before(flow: str, source: str, destination: str, shared: FlowContext) -> OrphanMarks:
    """Records the uncopied records of `flow` as orphaned and returns the marks.

    `flow` is the original flow, with its own source and destination; its ledger is at `destination`, where
    the failback starts. Raises FlowNotEnded, WireError, after which the caller retries, and DriverFenced.
    """
    old_primary = await shared.clusters.cluster(source)
    ledger_cluster = await shared.clusters.cluster(destination)
    await shared.leadership.ensure()
    return await leave_orphans(flow, old_primary, ledger_cluster, FAILBACK)
