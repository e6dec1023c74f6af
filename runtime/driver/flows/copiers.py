"""Makes the copier of a flow by what it reads and writes. Only this module and these classes know that."""

from __future__ import annotations

from runtime.contract.spec.route import router_of
from runtime.driver.flows.files_sink import FilesSink
from runtime.driver.flows.files_source import FilesSource
from runtime.driver.flows.flow import Copier, DriverFlow
from runtime.driver.flows.mirroring import MirrorCopier
from runtime.driver.flows.rounds import RoundCopier
from runtime.driver.flows.topic_sink import TopicSink
from runtime.driver.flows.topic_source import TopicSource


def copier_of(flow: DriverFlow) -> Copier:
    """Returns what copies a flow: slots between topics, rounds where an end is files."""
    spec, router = flow.spec, router_of(flow.job)
    if spec.files is not None:
        files = FilesSink(flow, spec.files)
        return RoundCopier(
            flow, TopicSource(flow, router, spec.files.layout, files), files, spec.files.every_ms
        )
    if spec.lines is not None:
        topic = TopicSink(flow, spec.lines)
        return RoundCopier(flow, FilesSource(flow, topic), topic, spec.lines.every_ms)
    return MirrorCopier(flow, router)
