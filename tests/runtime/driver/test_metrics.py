"""The metrics duty of a driver: it serves, it moves, and what is in its way stops nothing."""

import asyncio
import socket
import urllib.request
from collections.abc import Callable

from msgspec.structs import replace

from runtime.contract.spec.jobspec import METRICS_PORT, JobSpec
from runtime.driver.metrics import JobMetrics, ReplicaCounts, replicas
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.metrics.snapshot import ClusterSnapshot, JobSnapshot
from tests.runtime.metrics.given import flow, partition, picture, report, running

SEEN = picture(flow(), slots=[running()], reports=[report(partition())])


def spec(port: int | None) -> JobSpec:
    return replace(SEEN.spec, metrics_port=port)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.02)


def get(port: int | None, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: bytes = answer.read()
        return text.decode()


async def serving(metrics: JobMetrics) -> asyncio.Task[None]:
    task = asyncio.create_task(metrics.run())
    await until(lambda: metrics.port)
    return task


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_it_serves_what_was_heard_and_ends_with_the_job():
    async def run() -> None:
        metrics = JobMetrics(lambda: spec(0), lambda: SEEN)
        metrics.record_report(report(partition(records=42)))
        task = await serving(metrics)
        port = metrics.port
        text = await asyncio.to_thread(get, port, "/metrics")
        assert 'repl_partition_records_total{flow="f",partition="0",topic="t"} 42.0' in text
        await ended(task)
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    asyncio.run(run())


def test_a_port_that_is_taken_is_trouble_and_nothing_more():
    async def run() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = other.getsockname()[1]
            wanted = [spec(taken)]
            metrics = JobMetrics(lambda: wanted[0], lambda: SEEN, again_s=0.05)
            task = asyncio.create_task(metrics.run())
            await until(lambda: metrics.trouble)
            assert f"127.0.0.1:{taken}" in metrics.trouble
            assert not task.done()
            wanted[0] = spec(0)
            await until(lambda: metrics.port)
            assert metrics.trouble == ""
            await ended(task)

    asyncio.run(run())


def test_two_jobs_without_a_declared_port_take_two_ports_and_say_which():
    async def run() -> None:
        first, second = (JobMetrics(lambda: spec(0), lambda: SEEN) for _ in range(2))
        tasks = [await serving(first), await serving(second)]
        assert first.port is not None
        assert second.port is not None
        assert METRICS_PORT <= first.port < second.port
        assert second.address == f"127.0.0.1:{second.port}"
        assert second.taken == METRICS_PORT
        assert (first.trouble, second.trouble) == ("", "")
        assert "repl_" in await asyncio.to_thread(get, second.port, "/metrics")
        for task in tasks:
            await ended(task)

    asyncio.run(run())


def test_a_declared_port_is_never_said_to_be_another_one():
    async def run() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        metrics = JobMetrics(lambda: spec(port), lambda: SEEN)
        assert metrics.address == ""
        task = await serving(metrics)
        assert (metrics.address, metrics.taken) == (f"127.0.0.1:{port}", 0)
        await ended(task)
        assert metrics.address == ""

    asyncio.run(run())


def test_without_a_declared_port_an_address_of_another_machine_is_trouble():
    async def run() -> None:
        metrics = JobMetrics(lambda: replace(spec(0), metrics_host="192.0.2.1"), lambda: SEEN)
        task = asyncio.create_task(metrics.run())
        await until(lambda: metrics.trouble)
        assert f"192.0.2.1:{METRICS_PORT}" in metrics.trouble
        assert (metrics.port, metrics.taken) == (None, 0)
        await ended(task)

    asyncio.run(run())


def test_a_picture_that_fails_stops_nothing():
    async def run() -> None:
        def broken() -> JobSnapshot:
            raise ValueError("surprise")

        metrics = JobMetrics(lambda: spec(0), broken)
        task = asyncio.create_task(metrics.run())
        await until(lambda: metrics.trouble)
        assert metrics.trouble == "metrics: ValueError: surprise"
        assert not task.done()
        await ended(task)

    asyncio.run(run())


def test_off_it_listens_nowhere_and_keeps_nothing():
    async def run() -> None:
        metrics = JobMetrics(lambda: spec(None), lambda: SEEN)
        metrics.record_report(report(partition()))
        task = asyncio.create_task(metrics.run())
        await asyncio.sleep(0)
        assert metrics.port is None
        assert not metrics.slot_metrics.snapshot().partitions
        await ended(task)

    asyncio.run(run())


def listing(*partitions: Partition) -> dict[str, TopicMetadata]:
    return {"t": TopicMetadata("t", b"", ErrorCode.NONE, False, {one.index: one for one in partitions})}


def test_replicas_are_counted_from_a_listing():
    topics = listing(
        Partition(0, 1, 1, (1, 2), (1, 2)), Partition(1, 1, 1, (1, 2), (1,)), Partition(2, -1, 1, (1, 2), ())
    )
    assert replicas(topics) == ClusterSnapshot(3, 2, 1)


def test_a_listing_is_counted_again_only_when_it_is_another():
    counted, first = ReplicaCounts(), listing(Partition(0, 1, 1, (1, 2), (1,)))
    assert counted.of({"dc2": first}) == {"dc2": ClusterSnapshot(1, 1, 0)}
    assert counted.of({}) == {"dc2": ClusterSnapshot(1, 1, 0)}
    assert counted.of({"dc2": listing()}) == {"dc2": ClusterSnapshot(0, 0, 0)}
