"""`repl status`: jobs, flows, lag, rates and latency, read from the clusters alone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from planner.config import load
from planner.workflows.audit.requests import status_request
from planner.workflows.topology import TopologyRequest
from runtime.audit.status.join import join
from runtime.audit.status.reader import StatusReader, read_status
from runtime.contract.views.status_view import StatusView

_LATER_WITHIN_S = 3.0  # a cluster that is down must not delay what the others show


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatusRequest(TopologyRequest):
    """A request for the status of every flow. `over_ms`: how long rates are measured; 0 measures none."""

    over_ms: int = 1_000


def status(request: ReplicationStatusRequest) -> StatusView:
    """Reads the status once. It is right also when a job is dead or a datacenter is down."""
    topology = load(request.path, request.var_files)
    return asyncio.run(
        read_status(status_request(topology), request.over_ms / 1000, request.timeout_ms / 1000)
    )


async def watch_status(request: TopologyRequest, every_ms: int) -> AsyncIterator[StatusView]:
    """Yields the status again and again, each with the rates since the one before."""
    asked = status_request(load(request.path, request.var_files))
    within_s = request.timeout_ms / 1000
    async with StatusReader(asked, within_s) as reader:
        before = await reader.read()
        reader.within_s = min(within_s, _LATER_WITHIN_S)
        while True:
            await asyncio.sleep(every_ms / 1000)
            now = await reader.read()
            yield join(asked, now, before)
            before = now
