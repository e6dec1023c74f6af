"""Tells what a flow reads, from what was read of its cluster and what its job reports. Pure.

The status of a flow knows only this: of each topic or file its partitions, and its name at the destination.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.audit.status.facts import ClusterFacts, StatusRequest, TopicFacts
from runtime.audit.status.jobs import JobReports
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec

FlowProgress = Mapping[PartitionKey, Progress]


class TopicSourceFacts:
    """Holds the facts about the topics that a flow reads. `progress` is the flow's."""

    def __init__(self, flow: FlowSpec, cluster: ClusterFacts, progress: FlowProgress) -> None:
        self.cluster, self.progress = cluster, progress
        self._flow = flow

    def names(self, request: StatusRequest) -> Mapping[str, str | None]:
        """Returns the topics that the flow takes or has copied, with their names at the destination."""
        flow = self._flow
        names: dict[str, str | None] = dict(request.selected(flow, self.cluster.topics or {}))
        for key, made in self.progress.items():
            if key.topic in names or request.router.destination_topic(flow.name, key.topic) is not None:
                names[key.topic] = made.destination_topic
        return names

    @property
    def empty(self) -> str:
        """Why the flow has nothing to copy."""
        return f"no topic at {self.cluster.name} matches"


class FilesSourceFacts(TopicSourceFacts):
    """Holds the facts about the files that a flow reads, as its job last reported them.

    A file is a topic of one partition, of bytes or rows. While no job reads the files, they are those of the
    ledger.
    """

    def __init__(self, flow: FlowSpec, lines: LinesSpec, job: JobReports, progress: FlowProgress) -> None:
        self._topic = lines.topic
        driver = job.flows.get(flow.name)
        reports = {key.at: report for key, (_, report) in job.partitions.items() if key.flow == flow.name}
        ids = {key.at: made.source_topic_id for key, made in progress.items()}
        why = f"job {job.seen.name} does not report it"
        if job.seen.up and driver is not None:
            why = driver.why
        topics = {
            at.topic: TopicFacts(ids.get(at, b""), at.partition + 1, first=at.partition)
            for at in reports or ids
        }
        cluster = ClusterFacts(
            name=lines.endpoint,
            answers=not why,
            why=why,
            topics=topics,
            starts=dict.fromkeys(reports, 0),
            ends={at: report.source_end for at, report in reports.items()},
        )
        super().__init__(flow, cluster, {key: made for key, made in progress.items() if key.topic in topics})

    def names(self, request: StatusRequest) -> Mapping[str, str | None]:
        return dict.fromkeys(self.cluster.topics or (), self._topic)

    @property
    def empty(self) -> str:
        return f"{self.cluster.name} holds no file"


def source_facts(
    flow: FlowSpec, cluster: ClusterFacts, job: JobReports, progress: FlowProgress
) -> TopicSourceFacts:
    """Returns the facts about what a flow reads. `cluster` is that of its source, or of its job."""
    if flow.lines is not None:
        return FilesSourceFacts(flow, flow.lines, job, progress)
    return TopicSourceFacts(flow, cluster, progress)
