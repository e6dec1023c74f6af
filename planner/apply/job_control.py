"""Sends commands to running jobs, and watches through the status topic whether they carry them out."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from planner.kafka import ClusterEndpoint, producer
from planner.kafka.jobs import JobStatusTable
from planner.kafka.log import CommittedLogReader, append
from planner.model.topology import RUNNING
from runtime.contract.records import control
from runtime.contract.records.control import AcceptLoss, Command
from runtime.contract.records.job_status import FlowView, JobStatus
from runtime.contract.records.status import PartitionState, PartitionStatus
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.naming import CONTROL, STATUS

_POLL_S = 0.25
_CATCH_UP_S = 2.0
DENIED = "AUTHORIZATION_FAILED"  # a part of the names of all errors that mean a missing right


class JobWatch:
    """The status of all jobs of a destination, kept up to date."""

    def __init__(self, endpoint: ClusterEndpoint) -> None:
        self.table = JobStatusTable()
        self._reader = CommittedLogReader(endpoint, STATUS)
        self.table.update(self._reader.read_to_end())

    def __enter__(self) -> "JobWatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, value, trace)

    def job(self, name: str) -> JobStatus | None:
        """Returns what the job last reported; None if it never did."""
        return self.table.jobs.get(name)

    def wait_until(
        self, awaited: Callable[[], str], seconds: float, give_up: Callable[[], str | None]
    ) -> str:
        """Waits until `awaited` returns "", and returns "" then.

        Returns what is still missing after `seconds`, or the reason that `give_up` returns.
        """
        deadline = time.monotonic() + seconds
        while what := awaited():
            if (why := give_up()) is not None:
                return why
            if time.monotonic() > deadline:
                return f"{what}, after {seconds:.0f} s"
            self.read_news()
        return ""

    def read_news(self) -> None:
        """Reads new status records, for at most a moment."""
        self.table.update(self._reader.read_more(_POLL_S))

    def has_heartbeat(self, name: str, seconds: float) -> bool:
        """Returns whether a new heartbeat arrives within some time. The job's clock does not matter."""
        self._catch_up()
        before = self.job(name)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read_news()
            now = self.job(name)
            if now is not None and (before is None or now.at_ms != before.at_ms) and now.state != "stopped":
                return True
        return False

    def _catch_up(self) -> None:
        """Reads what was written before now: a heartbeat in it does not show that the job lives."""
        deadline = time.monotonic() + _CATCH_UP_S
        while news := self._reader.read_more(_POLL_S):
            self.table.update(news)
            if time.monotonic() > deadline:
                return


def _not_ended(flow: FlowSpec, view: FlowView | None) -> str:
    """Returns what is missing until the flow has ended; "" if nothing is.

    The end counts once its generation is in the ledger: then no job can copy the flow any more, and the
    offsets of its groups are final.
    """
    if view is not None and view.state == flow.state and view.ended:
        return ""
    why = view.why if view is not None and view.why else "the job is working on it"
    return f"flow.{flow.name} is not {flow.state} yet: {why}"


def not_copying(spec: JobSpec, topics: Mapping[str, int], table: JobStatusTable, driver_before: str) -> str:
    """Returns what is missing until the job runs this spec and copies every active flow; "" if nothing is.

    `topics`: how many topics the plan knew, by flow. A driver that ran before does not count.
    """
    status = table.jobs.get(spec.job)
    if status is None or status.driver == driver_before:
        return "it has not reported anything yet"
    if status.state != "running":
        return f"it is {status.state}" + (f": {status.trouble}" if status.trouble else "")
    if table.specs.get(spec.job) != spec:
        return "it does not run by its new spec yet" + (f": {status.trouble}" if status.trouble else "")
    views = {view.flow: view for view in status.flows}
    copied = Counter(
        one.flow for one in table.partitions(spec.job) if one.state is not PartitionState.STARTING
    )
    if refused := denied(spec, table):
        return refused
    for flow in spec.flows:
        view = views.get(flow.name)
        if flow.state not in RUNNING:
            missing = _not_ended(flow, view)
        elif view is None or not view.generation:
            why = view.why if view is not None and view.why else "it is being taken over"
            missing = f"flow.{flow.name} does not copy yet: {why}"
        elif flow.state == "active":
            missing = _not_copied(flow, view, topics.get(flow.name, 0), copied[flow.name], status)
        else:
            missing = ""
        if missing:
            return missing
    return ""


def denied(spec: JobSpec, table: JobStatusTable) -> str:
    """Returns which partition a broker does not let the job copy for want of a right; "" if none is known."""
    active = {flow.name for flow in spec.flows if flow.state == "active"}
    for one in table.partitions(spec.job):
        if one.flow in active and one.state is PartitionState.RETRYING and DENIED in one.why:
            return f"flow.{one.flow}: {one.topic}-{one.partition} is not copied: {one.why}"
    return ""


def _not_copied(flow: FlowSpec, view: FlowView, topics: int, copied: int, status: JobStatus) -> str:
    """Says what is missing until all topics and partitions of an active flow are copied."""
    if set(flow.promoted) - set(view.promoted):
        return f"flow.{flow.name}: its topics are not promoted yet: {view.why or 'the job is working on it'}"
    if view.topics < topics:
        why = "; ".join([view.why, *view.notes]).strip("; ") or "it is looking for its topics"
        return f"flow.{flow.name} copies {view.topics} of {topics} topics yet: {why}"
    if copied < view.partitions:
        slots = "; ".join(f"slot {slot.slot}: {slot.why}" for slot in status.slots if slot.why)
        more = f": {slots}" if slots else ""
        return f"flow.{flow.name}: {copied} of {view.partitions} partitions copy yet{more}"
    return ""


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
        return f"it refused the command: {error}"
    if status is not None and (command.id in status.answers or status.heard == command.id):
        return ""
    trouble = f": {status.trouble}" if status is not None and status.trouble else ""
    return f"it has not carried out the command{trouble}"


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
