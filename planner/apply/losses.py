"""`repl resume --accept-loss`: partitions that stopped because records were lost are resumed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.apply.context import JobTimeouts
from planner.apply.job_watch import JobWatch, new_id, not_acknowledged, refusal_of, send_command
from planner.kafka.client import ClusterClient
from planner.kafka.log import LogWriter
from runtime.contract.records.control import AcceptLoss
from runtime.contract.records.job_status import JobStatusTable, PartitionStatus

_DETECTED_S = 15.0  # by then a flow that was resumed has detected the loss again


@dataclass(frozen=True, slots=True)
class StoppedPartitions:
    """The partitions of a flow that have stopped and need a decision.

    `problem` says why those that stopped over lost records did not continue.
    """

    over_loss: tuple[PartitionStatus, ...]
    others: tuple[PartitionStatus, ...]
    problem: str = ""


Approve = Callable[[Sequence[PartitionStatus]], None]  # raises an exception if the user does not approve


async def accept_loss(
    client: ClusterClient, job: str, flow: str, approve: Approve, detected_s: float = _DETECTED_S
) -> StoppedPartitions:
    """Resumes the partitions that stopped over lost records, after `approve` agreed.

    A flow that was resumed just before first has to detect the loss again, for at most `detected_s`.
    """
    deadline = time.monotonic() + detected_s
    log = LogWriter(client)
    async with JobWatch(client) as watch:
        while not (stopped := stopped_partitions(watch.table, job, flow)).over_loss:
            if time.monotonic() > deadline:
                return stopped
            await watch.read_news()
        approve(stopped.over_loss)
        lost = [(partition.topic, partition.partition) for partition in stopped.over_loss]
        command = AcceptLoss(id=new_id(), flow=flow, partitions=lost)
        try:
            await send_command(log, job, command)
        finally:
            log.close()
        problem = await watch.wait_until(
            lambda: not_acknowledged(watch.job(job), command),
            JobTimeouts().acknowledged_s,
            refusal_of(watch, job, command),
        )
    return replace(stopped, problem=problem)


def stopped_partitions(table: JobStatusTable, job: str, flow: str) -> StoppedPartitions:
    """Returns the flow's partitions that need a decision, as the status topic reports them."""
    stopped = [
        partition
        for partition in table.partitions(job)
        if partition.flow == flow and partition.state.needs_someone
    ]
    stopped.sort(key=lambda one: (one.topic, one.partition))
    return StoppedPartitions(
        tuple(partition for partition in stopped if partition.state.over_loss),
        tuple(partition for partition in stopped if not partition.state.over_loss),
    )
