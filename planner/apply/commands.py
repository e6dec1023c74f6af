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

HEARD_S = 60.0
NOTICED_S = 15.0
_WRITE_S = 30.0


def new_id() -> str:
    return uuid.uuid4().hex


def tell(endpoint: ClusterEndpoint, job: str, command: Command) -> None:
    append(producer(endpoint), CONTROL, [(control.command_key(job), control.encode(command))], _WRITE_S)


def not_heard(status: JobStatus | None, command: Command) -> str:
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
    endpoint: ClusterEndpoint, job: str, flow: str, approve: Approve, noticed_s: float = NOTICED_S
) -> StoppedPartitions:
    """Those over lost records go on. A flow that was only now resumed first has to find again what stopped
    it.
    """
    deadline = time.monotonic() + noticed_s
    with JobWatch(endpoint) as watch:
        while not (found := standing(watch.board, job, flow)).over_loss:
            if time.monotonic() > deadline:
                return found
            watch.look()
        approve(found.over_loss)
        asked = [(one.topic, one.partition) for one in found.over_loss]
        command = AcceptLoss(id=new_id(), flow=flow, partitions=asked)
        tell(endpoint, job, command)
        problem = watch.until(lambda: not_heard(watch.job(job), command), HEARD_S, lambda: None)
    return replace(found, problem=problem)


def standing(board: JobStatusTable, job: str, flow: str) -> StoppedPartitions:
    stopped = [one for one in board.partitions(job) if one.flow == flow and one.state.needs_someone]
    stopped.sort(key=lambda one: (one.topic, one.partition))
    return StoppedPartitions(
        tuple(one for one in stopped if one.state.over_loss),
        tuple(one for one in stopped if not one.state.over_loss),
    )
