"""This module serves the job's metrics: a snapshot each second, and the HTTP endpoint that shows it.

A failure here never stops the copying: `trouble` names it, and it is retried.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import ProcessCollector

from runtime.contract.records.job_status import JobStatus, SlotReport
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import METRICS_PORT
from runtime.driver.flows.flow import DriverFlow
from runtime.kafka.protocol.metadata import NO_LEADER, TopicMetadata
from runtime.metrics.endpoint import JobCollector, MetricsEndpoint
from runtime.metrics.snapshot import ClusterSnapshot, FlowSnapshot, JobSnapshot, SlotMetrics, unready

_EVERY_S = 1.0
_RETRY_S = 5.0
_PORTS_TRIED = 100  # from the usual port on, where the topology declares none


class JobMetrics:
    """Takes snapshots of the job until cancelled and owns the endpoint.

    `book` receives the slots' reports. If the topology declares a port, no other port is tried. Otherwise the
    endpoint listens on METRICS_PORT, or on the next free port.
    """

    def __init__(
        self, spec: Callable[[], JobSpec], picture: Callable[[], JobSnapshot], again_s: float = _RETRY_S
    ) -> None:
        self.slot_metrics = SlotMetrics()
        self.trouble = ""
        self._spec = spec
        self._make = picture
        self._retry_s = again_s
        self._newest: JobSnapshot | None = None
        self._endpoint: MetricsEndpoint | None = None
        self._address: tuple[str, int] | None = None

    @property
    def port(self) -> int | None:
        """The port that the endpoint listens on, or None while it does not listen."""
        return self._endpoint.port if self._endpoint is not None else None

    @property
    def address(self) -> str:
        """The host and port that the endpoint listens on, or an empty text while it does not listen."""
        return "" if self.port is None or self._address is None else f"{self._address[0]}:{self.port}"

    @property
    def taken(self) -> int:
        """The usual port, if it was wanted and another one had to be taken, or 0."""
        other = self._address is not None and self._address[1] == 0 and self.port not in (None, METRICS_PORT)
        return METRICS_PORT if other else 0

    def record_report(self, report: SlotReport) -> None:
        """Takes the report of a slot, if the job serves metrics."""
        if self._spec().metrics is not None:
            self.slot_metrics.record_report(report)

    async def run(self) -> None:
        """Refreshes the snapshot and keeps the endpoint open until cancelled."""
        try:
            while True:
                pause = await self._refresh()
                await asyncio.sleep(pause)
        finally:
            self._close()

    async def _refresh(self) -> float:
        """Refreshes the snapshot once and returns the pause before the next refresh, in seconds."""
        metrics = self._spec().metrics
        wanted = (metrics.host, metrics.port) if metrics is not None else None
        if wanted != self._address:
            self._close()
            self._address = wanted
            self.trouble = ""
        if metrics is None:
            return _EVERY_S
        try:
            self._newest = self._make()
            self._drop_uncopied(self._newest)
            if self._endpoint is None:
                self._endpoint = await asyncio.to_thread(self._open_endpoint, metrics.host, metrics.port)
        except OSError as error:
            self.trouble = (
                f"metrics can't be served at {metrics.host}:{metrics.port or METRICS_PORT}: {error}"
            )
            return self._retry_s
        except Exception as error:  # noqa: BLE001 - a failure of the metrics must not stop the copying
            self.trouble = f"metrics: {type(error).__name__}: {error}"
            return self._retry_s
        self.trouble = ""
        return _EVERY_S

    def _drop_uncopied(self, newest: JobSnapshot) -> None:
        """Drops the partitions that are not copied any more."""
        if len(self.slot_metrics.partitions) > sum(len(flow.partitions) for flow in newest.flows):
            self.slot_metrics.retain_only([key for flow in newest.flows for key in flow.partitions])

    def _open_endpoint(self, host: str, port: int) -> MetricsEndpoint:
        """Opens the endpoint at the port, or at the first free one where none is declared."""
        collectors = [JobCollector(lambda: self._newest, self.slot_metrics), ProcessCollector(registry=None)]
        usual = range(METRICS_PORT, METRICS_PORT + _PORTS_TRIED)
        for candidate in usual if port == 0 else (port,):
            try:
                return MetricsEndpoint(
                    host, candidate, collectors, lambda: unready(self._newest, time.monotonic())
                )
            except OSError as error:
                if port != 0 or error.errno != errno.EADDRINUSE or candidate == usual[-1]:
                    raise
        raise AssertionError("the last candidate either opens or raises")

    def _close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None


def flow_snapshots(
    status: JobStatus, flows: Iterable[DriverFlow], schemas: Mapping[tuple[str, str], int]
) -> list[FlowSnapshot]:
    """Returns the snapshot of each flow that the status shows. `schemas` counts actions by flow and kind."""
    views = {view.flow: view for view in status.flows}
    return [
        FlowSnapshot(
            flow.spec,
            views[flow.name],
            flow.partitions.keys(),
            {
                **flow.copier.actions,
                **{what: made for (name, what), made in schemas.items() if name == flow.name},
            },
            flow.promoted,
        )
        for flow in flows
        if flow.name in views
    ]


class ReplicaCounts:
    """A ReplicaCounts counts each cluster listing only once.

    A large cluster has very many partitions.
    """

    def __init__(self) -> None:
        self._counted: dict[str, tuple[Mapping[str, TopicMetadata], ClusterSnapshot]] = {}

    def of(self, listed: Mapping[str, Mapping[str, TopicMetadata]]) -> dict[str, ClusterSnapshot]:
        """Returns the partition counts of each listed cluster."""
        for name, topics in listed.items():
            if name not in self._counted or self._counted[name][0] is not topics:
                self._counted[name] = (topics, replicas(topics))
        return {name: counted for name, (_, counted) in self._counted.items()}


def replicas(topics: Mapping[str, TopicMetadata]) -> ClusterSnapshot:
    """Counts the partitions of a listing, those without a leader, and those with missing replicas."""
    partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
    return ClusterSnapshot(
        partitions=len(partitions),
        under_replicated=sum(len(partition.in_sync) < len(partition.replicas) for partition in partitions),
        without_leader=sum(partition.leader == NO_LEADER for partition in partitions),
    )
