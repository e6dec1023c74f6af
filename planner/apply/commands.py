"""Commands to a running job: sends them through its control topic and waits for the answer."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.apply.job_watch import JobWatch
from planner.kafka import ClusterEndpoint, producer
from planner.kafka.jobs import JobStatusTable
from planner.kafka.log import append
from runtime.contract.records import control
from runtime.contract.records.control import AcceptLoss, Command
from runtime.contract.records.job_status import JobStatus
from runtime.contract.records.status import PartitionStatus
from runtime.contract.spec.naming import CONTROL

ACKNOWLEDGED_S = 60.0
REPORTED_S = 15.0
_WRITE_S = 30.0


def new_id() -> str:
    """Returns a new id, by which the job's answer names the command."""
    return uuid.uuid4().hex


def send_command(endpoint: ClusterEndpoint, job: str, command: Command) -> None:
    """Writes a command to the control topic and returns when all in-sync replicas have it."""
    append(producer(endpoint), CONTROL, [(control.command_key(job), control.encode(command))], _WRITE_S)


def not_acknowledged(status: JobStatus | None, command: Command) -> str:
    """Returns what is missing until the job has carried out the command; "" if nothing is."""
    if status is not None and (error := status.answers.get(command.id)):
        return f"it refused what it was told: {error}"
    if status is not None and (command.id in status.answers or status.heard == command.id):
        return ""
    trouble = f": {status.trouble}" if status is not None and status.trouble else ""
    return f"it has not taken over what it was told{trouble}"


@dataclass(frozen=True, slots=True)
class StoppedPartitions:
    """The partitions of a flow that have stopped and need a decision.

    `problem` says why those that stopped over lost records did not continue.
    """

    over_loss: tuple[PartitionStatus, ...]
    others: tuple[PartitionStatus, ...]
    problem: str = ""


Approve = Callable[[Sequence[PartitionStatus]], None]  # raises an exception if the user does not approve


def accept_loss(
    endpoint: ClusterEndpoint, job: str, flow: str, approve: Approve, reported_s: float = REPORTED_S
) -> StoppedPartitions:
    """Resumes the partitions that stopped over lost records, after `approve` agreed.

    A flow that was resumed just before first has to detect the loss again, for at most `reported_s`.
    """
    deadline = time.monotonic() + reported_s
    with JobWatch(endpoint) as watch:
        while not (found := stopped_partitions(watch.table, job, flow)).over_loss:
            if time.monotonic() > deadline:
                return found
            watch.read_news()
        approve(found.over_loss)
        asked = [(one.topic, one.partition) for one in found.over_loss]
        command = AcceptLoss(id=new_id(), flow=flow, partitions=asked)
        send_command(endpoint, job, command)
        problem = watch.wait_until(
            lambda: not_acknowledged(watch.job(job), command), ACKNOWLEDGED_S, lambda: None
        )
    return replace(found, problem=problem)


def stopped_partitions(table: JobStatusTable, job: str, flow: str) -> StoppedPartitions:
    """Returns the flow's partitions that need a decision, as the status topic reports them."""
    stopped = [one for one in table.partitions(job) if one.flow == flow and one.state.needs_someone]
    stopped.sort(key=lambda one: (one.topic, one.partition))
    return StoppedPartitions(
        tuple(one for one in stopped if one.state.over_loss),
        tuple(one for one in stopped if not one.state.over_loss),
    )
