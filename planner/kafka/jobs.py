"""The status topic of a destination: what jobs report about themselves, the newest record by key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.kafka.log import TopicRecord
from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobKey, JobStatus, SlotKey, SlotReport, SpecKey
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.records.status import PartitionStatus
from runtime.contract.spec.jobspec import JobSpec


@dataclass(slots=True)
class JobStatusTable:
    """The newest reports of jobs. `specs` has None for a job whose spec this release can't read."""

    jobs: dict[str, JobStatus] = field(default_factory=dict)
    specs: dict[str, JobSpec | None] = field(default_factory=dict)
    slots: dict[tuple[str, int], SlotReport] = field(default_factory=dict)

    def update(self, records: Iterable[TopicRecord]) -> None:
        """Adds records. Only the newest of each key is decoded."""
        newest = {record.key: record.value for record in records}
        for key, value in newest.items():
            if value is not None:
                self._decode(key, value)

    def _decode(self, key: bytes, value: bytes) -> None:
        try:
            match job_status.decode_key(key):
                case JobKey(job):
                    self.jobs[job] = job_status.decode_job(value)
                case SpecKey(job):
                    self.specs[job] = None
                    self.specs[job] = job_status.decode_spec(value)
                case SlotKey(job, slot):
                    self.slots[job, slot] = job_status.decode_slot(value)
                case None:
                    pass
        except UnreadableValue:
            return  # written by a newer release: it is not interpreted

    def partitions(self, job: str) -> list[PartitionStatus]:
        """Returns the partitions as the slots of the job's newest driver last reported them."""
        status = self.jobs.get(job)
        driver = status.driver if status is not None else ""
        return [
            one
            for (name, _), report in self.slots.items()
            if name == job and report.driver == driver
            for one in report.status.partitions
        ]

    def lag(self, job: str) -> Mapping[str, int]:
        """Returns the records not copied yet, by flow, as far as they are known."""
        found: dict[str, int] = {}
        for one in self.partitions(job):
            behind = one.source_end - one.position if min(one.source_end, one.position) >= 0 else 0
            found[one.flow] = found.get(one.flow, 0) + max(behind, 0)
        return found
