"""Tells what a flow reads, from what was read of its cluster and what its job reports. Pure.

The status of a flow knows only this: of each topic or file its partitions, and its name at the destination.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from runtime.audit.status.facts import ClusterFacts, StatusRequest, TopicFacts
from runtime.audit.status.jobs import JobReports
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec

FlowProgress = Mapping[PartitionKey, Progress]


class FlowSourceFacts(Struct, frozen=True):
    """Holds the facts about the topics that a flow reads, or about its files.

    `names`: the topics that the flow takes or has copied, with their names at the destination. `progress` is
    that of these. `empty` says why the flow has nothing to copy.
    """

    cluster: ClusterFacts
    progress: FlowProgress
    names: Mapping[str, str | None]
    empty: str


def source_facts(
    request: StatusRequest, flow: FlowSpec, cluster: ClusterFacts, job: JobReports, progress: FlowProgress
) -> FlowSourceFacts:
    """Returns the facts about what a flow reads. `cluster` is that of its source, or of its job."""
    if flow.lines is not None:
        return _files(flow, flow.lines, job, progress)
    names: dict[str, str | None] = dict(request.selected(flow, cluster.topics or {}))
    for key, made in progress.items():
        if key.topic in names or request.router.destination_topic(flow.name, key.topic) is not None:
            names[key.topic] = made.destination_topic
    return FlowSourceFacts(cluster, progress, names, f"no topic at {cluster.name} matches")


def _files(flow: FlowSpec, lines: LinesSpec, job: JobReports, progress: FlowProgress) -> FlowSourceFacts:
    """Returns the facts about files, as the flow's job last reported them.

    A file is a topic of one partition, of bytes or rows. While no job reads the files, they are those of the
    ledger.
    """
    driver = job.flows.get(flow.name)
    reports = {key.at: report for key, (_, report) in job.partitions.items() if key.flow == flow.name}
    ids = {key.at: made.source_topic_id for key, made in progress.items()}
    why = f"job {job.seen.name} does not report it"
    if job.seen.up and driver is not None:
        why = driver.why
    topics = {
        at.topic: TopicFacts(ids.get(at, b""), at.partition + 1, first=at.partition) for at in reports or ids
    }
    cluster = ClusterFacts(
        name=lines.endpoint,
        answers=not why,
        why=why,
        topics=topics,
        starts=dict.fromkeys(reports, 0),
        ends={at: report.source_end for at, report in reports.items()},
    )
    known = {key: made for key, made in progress.items() if key.topic in topics}
    return FlowSourceFacts(
        cluster, known, dict.fromkeys(topics, lines.topic), f"{lines.endpoint} holds no file"
    )
