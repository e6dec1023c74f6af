"""The metrics duty of a driver: it serves, it moves, and what is in its way stops nothing."""

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import METRICS_PORT, MetricsSpec
from runtime.driver.metrics import JobMetrics, ReplicaCounts, replicas
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.metrics.snapshot import ClusterSnapshot, JobSnapshot
from tests.runtime.metrics.given import flow, partition, picture, report, running
from tests.waiting import until

SEEN = picture(flow(), slots=[running()], reports=[report(partition())])


def spec(port: int | None) -> JobSpec:
    return replace(SEEN.spec, metrics=None if port is None else MetricsSpec(port=port))


def get(port: int | None, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: bytes = answer.read()
        return text.decode()


@asynccontextmanager
async def running_metrics(metrics: JobMetrics, holds: Callable[[], object]) -> AsyncIterator[None]:
    """Until it holds; then the duty goes on, and ends with the block."""
    task = asyncio.create_task(metrics.run())
    await until(holds)
    assert not task.done()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_serves_the_reports_and_ends_with_the_job():
    metrics = JobMetrics(lambda: spec(0), lambda: SEEN)
    metrics.record_report(report(partition(records=42)))
    async with running_metrics(metrics, lambda: metrics.port):
        port = metrics.port
        text = await asyncio.to_thread(get, port, "/metrics")
        assert 'repl_partition_records_total{flow="f",partition="0",topic="t"} 42.0' in text
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


async def test_a_port_that_is_taken_is_trouble_and_nothing_more():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        wanted = [spec(taken)]
        metrics = JobMetrics(lambda: wanted[0], lambda: SEEN, again_s=0.05)
        async with running_metrics(metrics, lambda: metrics.trouble):
            assert f"127.0.0.1:{taken}" in metrics.trouble
            wanted[0] = spec(0)
            await until(lambda: metrics.port)
            assert metrics.trouble == ""


async def test_two_jobs_without_a_declared_port_take_two_ports_and_say_which():
    first, second = (JobMetrics(lambda: spec(0), lambda: SEEN) for _ in range(2))
    async with (
        running_metrics(first, lambda: first.port),
        running_metrics(second, lambda: second.port),
    ):
        assert first.port is not None
        assert second.port is not None
        assert METRICS_PORT <= first.port < second.port
        assert (second.address, second.taken) == (f"127.0.0.1:{second.port}", METRICS_PORT)
        assert (first.trouble, second.trouble) == ("", "")


async def test_a_declared_port_is_never_said_to_be_another_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    metrics = JobMetrics(lambda: spec(port), lambda: SEEN)
    assert metrics.address == ""
    async with running_metrics(metrics, lambda: metrics.port):
        assert (metrics.address, metrics.taken) == (f"127.0.0.1:{port}", 0)
    assert metrics.address == ""


def broken() -> JobSnapshot:
    raise ValueError("surprise")


@pytest.mark.parametrize(
    ("changes", "picture", "trouble"),
    [
        (
            {"metrics": MetricsSpec(host="192.0.2.1")},
            lambda: SEEN,
            f"192.0.2.1:{METRICS_PORT}",
        ),  # another machine's
        ({}, broken, "metrics: ValueError: surprise"),
    ],
)
async def test_an_address_or_a_picture_that_fails_is_trouble_and_stops_nothing(
    changes: dict[str, Any], picture: Callable[[], JobSnapshot], trouble: str
):
    metrics = JobMetrics(lambda: replace(spec(0), **changes), picture)
    async with running_metrics(metrics, lambda: metrics.trouble):
        assert trouble in metrics.trouble
        assert not changes or (metrics.port, metrics.taken) == (None, 0)


async def test_off_it_listens_nowhere_and_keeps_nothing():
    metrics = JobMetrics(lambda: spec(None), lambda: SEEN)
    metrics.record_report(report(partition()))
    async with running_metrics(metrics, lambda: True):
        assert metrics.port is None
        assert not metrics.slot_metrics.partitions


def listing(*partitions: Partition) -> dict[str, TopicMetadata]:
    return {"t": TopicMetadata("t", b"", ErrorCode.NONE, False, {one.index: one for one in partitions})}


def test_replicas_are_counted_from_a_listing_and_again_only_when_it_is_another():
    whole, lost, leaderless = (
        Partition(0, 1, 1, (1, 2), (1, 2)),
        Partition(1, 1, 1, (1, 2), (1,)),
        Partition(2, -1, 1, (1, 2), ()),
    )
    assert replicas(listing(whole, lost, leaderless)) == ClusterSnapshot(3, 2, 1)
    counted = ReplicaCounts()
    assert counted.of({"dc2": listing(lost)}) == counted.of({}) == {"dc2": ClusterSnapshot(1, 1, 0)}
    assert counted.of({"dc2": listing()}) == {"dc2": ClusterSnapshot(0, 0, 0)}
