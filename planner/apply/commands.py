"""What a running job is told through its control topic, and whether it heard."""

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
    return uuid.uuid4().hex


def send_command(endpoint: ClusterEndpoint, job: str, command: Command) -> None:
    append(producer(endpoint), CONTROL, [(control.command_key(job), control.encode(command))], _WRITE_S)


def not_acknowledged(status: JobStatus | None, command: Command) -> str:
    """What is missing until the job has carried it out; "" when nothing is."""
    if status is not None and (error := status.answers.get(command.id)):
        return f"it refused what it was told: {error}"
    if status is not None and (command.id in status.answers or status.heard == command.id):
        return ""
    trouble = f": {status.trouble}" if status is not None and status.trouble else ""
    return f"it has not taken over what it was told{trouble}"


@dataclass(frozen=True, slots=True)
class StoppedPartitions:
    """The partitions of a flow that stand still until somebody acts. `problem`: what kept those over lost
    records from going on.
    """

    over_loss: tuple[PartitionStatus, ...]
    others: tuple[PartitionStatus, ...]
    problem: str = ""


Approve = Callable[[Sequence[PartitionStatus]], None]  # raises where it is not approved


def accept_loss(
    endpoint: ClusterEndpoint, job: str, flow: str, approve: Approve, reported_s: float = REPORTED_S
) -> StoppedPartitions:
    """Those over lost records go on. A flow that was only now resumed first has to find again what stopped
    it.
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
    stopped = [one for one in table.partitions(job) if one.flow == flow and one.state.needs_someone]
    stopped.sort(key=lambda one: (one.topic, one.partition))
    return StoppedPartitions(
        tuple(one for one in stopped if one.state.over_loss),
        tuple(one for one in stopped if not one.state.over_loss),
    )
