"""Says what is missing until a job that was launched or changed copies, and why a flow can't start. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.apply.denials import denied
from planner.graph.messages import few
from runtime.contract.records.job_status import FlowView, JobStatus, JobStatusTable, PartitionState
from runtime.contract.spec.jobspec import FlowSpec, JobSpec


def _not_ended(flow: FlowSpec, view: FlowView | None) -> str:
    """Returns what is missing until the flow has ended; "" if nothing is."""
    if view is not None and view.is_done_with(flow):
        return ""
    why = view.why if view is not None and view.why else "the job is working on it"
    return f"flow.{flow.name} is not {flow.state} yet: {why}"


_NOTHING_KNOWN: Final = -(1 << 63)


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job that was launched or changed, by what it reports. `spec` is what it is to run by.

    `driver_before` ran the job until then: what it reports does not count.
    """

    spec: JobSpec
    table: JobStatusTable
    driver_before: str = ""

    @property
    def status(self) -> JobStatus | None:
        """Returns what the driver reports; None until another one than before has reported."""
        status = self.table.jobs.get(self.spec.job)
        return status if status is not None and status.driver != self.driver_before else None

    def not_copying(self, topics: Mapping[str, int]) -> str:
        """Returns what is missing until the job runs this spec and copies every active flow; "" if nothing.

        `topics`: how many topics the plan knew, by flow.
        """
        status, spec = self.status, self.spec
        if status is None:
            return "it has not reported anything yet"
        if status.state != "running":
            ships = (
                f"Spark has copied {status.shipped / 1e6:,.0f} MB of files to its cluster"
                if status.shipped
                else ""
            )
            why = status.trouble or ships
            return f"it is {status.state}" + (f": {why}" if why else "")
        if self.table.specs.get(spec.job) != spec:
            return "it does not run by its new spec yet" + (f": {status.trouble}" if status.trouble else "")
        if refused := denied(spec, self.table):
            return refused
        views = {view.flow: view for view in status.flows}
        copied = self._copied()
        for flow in spec.flows:
            view = views.get(flow.name)
            if not flow.runs:
                missing = _not_ended(flow, view)
            elif view is None or not view.generation:
                why = view.why if view is not None and view.why else "it is being taken over"
                missing = f"flow.{flow.name} does not copy yet: {why}"
            elif flow.state == "active":
                missing = _not_copied(flow, view, topics.get(flow.name, 0), copied[flow.name], status)
                if not missing and view.attempts:
                    missing = f"flow.{flow.name} does not copy yet: {_reason(view) or 'it is starting'}"
            else:
                missing = ""
            if missing:
                return missing
        return ""

    def failing_flow(self) -> str:
        """Returns which active flow of the running job has failed to start, and why; "" if none has."""
        status = self.status
        if status is None or self.table.specs.get(self.spec.job) != self.spec:
            return ""
        active = {flow.name for flow in self.spec.flows if flow.state == "active"}
        failing = (view for view in status.flows if view.flow in active and view.attempts > 1)
        return next(
            (f"flow.{view.flow} can't start: {why}" for view in failing if (why := _reason(view))), ""
        )

    def lacking_resources(self) -> str:
        """Returns what the job waits for that Spark's cluster does not give it; "" if it has a core."""
        status = self.status
        if status is None:
            return ""
        if status.state == "starting":
            return status.trouble
        if any(slot.state != "unscheduled" for slot in status.slots):
            return ""
        return _slot_reasons(status)

    def progress(self) -> tuple[int, ...]:
        """Returns numbers that grow while Spark ships the job's files, and the job starts flows or ends them.

        Flows taken over, and partitions found and copied; flows that have ended; and, below zero, the records
        that flows which end have left to copy. A job with thousands of partitions may start for minutes, and
        the last records may take as long: the wait goes on while one of these numbers grows.
        """
        status = self.status
        if status is None:
            return 0, 0, _NOTHING_KNOWN, 0
        taken_over = sum((view.generation > 0) + view.partitions for view in status.flows)
        ending = {flow.name for flow in self.spec.flows if not flow.runs}
        left = [
            max(partition.source_end - partition.position, 0)
            for partition in self.table.partitions(self.spec.job)
            if partition.flow in ending
        ]
        ended = sum(view.ended for view in status.flows)
        started = taken_over + self._copied().total()
        return started, ended, -sum(left) if left else _NOTHING_KNOWN, status.shipped

    def _copied(self) -> Counter[str]:
        """Returns how many partitions slots have started to copy, by flow."""
        return Counter(
            partition.flow
            for partition in self.table.partitions(self.spec.job)
            if partition.state is not PartitionState.STARTING
        )


def _slot_reasons(status: JobStatus) -> str:
    """Returns why slots do not run, each reason once with its slots; "" if no slot has one."""
    slots: dict[str, list[int]] = {}
    for slot in status.slots:
        if slot.why:
            slots.setdefault(slot.why, []).append(slot.slot)
    return "; ".join(
        f"{'slots' if len(numbers) > 1 else 'slot'} {few(numbers)}: {why}" for why, numbers in slots.items()
    )


def _reason(view: FlowView) -> str:
    """Returns what the job reports of a flow that does not copy; "" if nothing."""
    return "; ".join([view.why, *view.notes]).strip("; ")


def _not_copied(flow: FlowSpec, view: FlowView, topics: int, copied: int, status: JobStatus) -> str:
    """Says what is missing until all topics and partitions of an active flow are copied."""
    if not view.is_done_with(flow):
        return f"flow.{flow.name}: its topics are not promoted yet: {view.why or 'the job is working on it'}"
    if view.topics < topics:
        why = _reason(view) or "it is looking for its topics"
        return f"flow.{flow.name} copies {view.topics} of {topics} topics yet: {why}"
    if copied < view.partitions:
        slots = _slot_reasons(status)
        more = f": {slots}" if slots else ""
        return f"flow.{flow.name}: {copied} of {view.partitions} partitions copy yet{more}"
    return ""
