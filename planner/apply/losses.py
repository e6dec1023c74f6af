"""`repl resume --accept-loss`: partitions that stopped because records were lost are resumed."""

import time
from collections.abc import Callable, Iterable, Sequence

from planner.apply.context import JobTimeouts
from planner.apply.job_watch import JobWatch, new_id, not_acknowledged, refusal_of, send_command
from planner.kafka.client import ClusterClient
from planner.kafka.log import LogWriter
from planner.model.diagnostic import Failure, error
from runtime.contract.records.control import AcceptLoss
from runtime.contract.records.job_status import JobStatusTable, PartitionStatus

_DETECTED_S = 15.0  # by then a flow that was resumed has detected the loss again


Approve = Callable[[Sequence[PartitionStatus]], None]  # raises an exception if the user does not approve


async def accept_loss(
    client: ClusterClient,
    job: str,
    flow: str,
    approve: Approve,
    detected_s: float = _DETECTED_S,
    acknowledged_s: float = JobTimeouts().acknowledged_s,
) -> list[PartitionStatus]:
    """Resumes the partitions that stopped over lost records, after `approve` agreed.

    Returns all partitions of the flow that had stopped and need a decision. A flow that was resumed just
    before first has to detect the loss again, for at most `detected_s`. Failure: the job did not resume them,
    or has not said so. Then the command may be given again: it resumes those that have stopped by then.
    """
    deadline = time.monotonic() + detected_s
    async with JobWatch(client) as watch:
        while not (over_loss := lost_of(stopped := stopped_partitions(watch.table, job, flow))):
            if time.monotonic() > deadline:
                return stopped
            await watch.read_news()
        approve(over_loss)
        lost = [(partition.topic, partition.partition) for partition in over_loss]
        command = AcceptLoss(id=new_id(), flow=flow, partitions=lost)
        log = LogWriter(client)
        try:
            await send_command(log, job, command)
        finally:
            log.close()
        problem = await watch.wait_until(
            lambda: not_acknowledged(watch.job(job), command),
            acknowledged_s,
            refusal_of(watch, job, command),
        )
    if problem:
        raise Failure(error(f"flow.{flow}: {problem}", "look at repl status"))
    return stopped


def stopped_partitions(table: JobStatusTable, job: str, flow: str) -> list[PartitionStatus]:
    """Returns the flow's partitions that need a decision, as the status topic reports them."""
    stopped = [
        partition
        for partition in table.partitions(job)
        if partition.flow == flow and partition.state.needs_decision
    ]
    return sorted(stopped, key=lambda partition: (partition.topic, partition.partition))


def lost_of(stopped: Iterable[PartitionStatus]) -> list[PartitionStatus]:
    """Returns the partitions that stopped over lost records."""
    return [partition for partition in stopped if partition.state.over_loss]
