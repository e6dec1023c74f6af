"""A real job, asked by a real Prometheus."""

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.spec.launch import MetricsSpec
from runtime.lab.lab import Lab
from tests.ports import free_port
from tests.processes import kill_together
from tests.prometheus import Prometheus, promtool
from tests.records import commit_group, create_topic, wait_for, write
from tests.runtime.metrics.expressions import ALERTS, alerts, panels
from tests.spark.forwarder import Door
from tests.spark.job import Running, flow_of, spec_of, start_job

pytestmark = [pytest.mark.spark, pytest.mark.long]

TOPIC, COUNT = "metered-t", 2_000
RECORDS = f'sum(repl_partition_records_total{{topic="{TOPIC}"}})'
_SELECTOR = re.compile(r"\b(?:repl_[a-z_]+|up)\b(?:\{[^}]*\})?")


def get(port: int, path: str) -> tuple[int, str]:
    """The status is 0 where nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def until(holds: Callable[[], object], within_s: float = 180.0) -> None:
    wait_for(holds, within_s)


@pytest.fixture
def job(lab: Lab, door: Door, tmp_path: Path) -> Iterator[Running]:
    """Two slots, one flow with all that metrics tell of: an rpo, a limit, heartbeats, a group."""
    dc1 = lab.clusters["dc1"].client
    create_topic(dc1, TOPIC, 4)
    write(dc1, TOPIC, [b"x" * 100] * COUNT)
    commit_group(dc1, "metered", {(TOPIC, 0): 1})
    flow = flow_of("metered", [TOPIC], heartbeats_every_ms=500, rpo_ms=60_000, rate_limit=50_000_000)
    spec = spec_of(lab, "metered", [flow], slots=2, metrics=MetricsSpec(port=free_port()))
    behind = replace(spec.clusters["dc2"], bootstrap=door.address)
    with start_job(replace(spec, clusters={**spec.clusters, "dc2": behind}), tmp_path) as running:
        yield running


@pytest.fixture
def door(lab: Lab) -> Iterator[Door]:
    """The job's way to its destination, closed at first."""
    with Door(lab.clusters["dc2"].bootstrap) as made:
        yield made


def port_of(job: Running) -> int:
    assert job.spec.metrics is not None
    return job.spec.metrics.port


@pytest.fixture
def prometheus(job: Running, tmp_path: Path) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, free_port(), [f"127.0.0.1:{port_of(job)}"], ALERTS)
    try:
        yield running
    finally:
        running.close()


def test_a_job_as_prometheus_sees_it_from_its_start_to_its_end(
    lab: Lab, job: Running, door: Door, prometheus: Prometheus
) -> None:
    port = port_of(job)
    until(lambda: get(port, "/healthz") == (200, "alive\n"))
    status, why = get(port, "/readyz")
    assert status == 503
    assert "the job is starting" in why
    door.open()
    until(lambda: get(port, "/readyz") == (200, "ready\n"))
    prometheus.await_up()

    # What it copied is counted once.
    until(lambda: prometheus.value(RECORDS) == COUNT)
    until(lambda: prometheus.value(f'sum(repl_partition_lag_records{{topic="{TOPIC}"}})') == 0)
    until(lambda: prometheus.value(f'max(repl_partition_lag_seconds{{topic="{TOPIC}"}})') == 0)
    until(lambda: (prometheus.value("sum(repl_slot_records_total)") or 0) >= COUNT)
    until(lambda: (prometheus.value("sum(repl_slot_record_latency_seconds_count)") or 0) >= COUNT)
    until(lambda: prometheus.value("repl_job_up") == 1)
    until(lambda: prometheus.value('repl_job_slots{state="running"}') == 2)
    until(lambda: (prometheus.value("min(repl_slot_resident_memory_bytes)") or 0) > 10 << 20)
    until(lambda: prometheus.value('sum(repl_flow_partitions{state="caught_up"})') == 5)
    checked = promtool("check", "metrics", given=get(port, "/metrics")[1])
    assert not [line for line in checked.stdout.splitlines() if line.startswith("repl_")], checked.stdout

    # Panels and alerts speak of series that there are.
    await_series(prometheus, list(panels("15s")))
    await_series(
        prometheus,
        [
            (rule["alert"], selector)
            for rule in alerts()
            for selector in _SELECTOR.findall(rule["expr"])
            if not selector.startswith("repl_drill_")  # of a file that repl drill writes, not of a job
        ],
    )
    until(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()))
    assert {rule["name"] for rule in prometheus.rules()} == {rule["alert"] for rule in alerts()}

    # A killed slot takes no count along.
    before = prometheus.value("sum(repl_slot_records_total)") or 0
    kill_together(job.workers)
    until(lambda: (prometheus.value("sum(repl_slot_restarts_total)") or 0) >= 1)
    write(lab.clusters["dc1"].client, TOPIC, [b"y" * 100] * COUNT)
    until(lambda: prometheus.value(RECORDS) == 2 * COUNT)
    until(lambda: (prometheus.value("sum(repl_slot_records_total)") or 0) >= before + COUNT)
    for name in ("repl_slot_records_total", "repl_partition_records_total", "repl_slot_bytes_total"):
        assert prometheus.value(f"sum(resets({name}[10m]))") == 0
    until(lambda: get(port, "/readyz")[0] == 200)
    assert job.stop() == 0, job.tail()
    assert get(port, "/healthz") == (0, "")


def await_series(prometheus: Prometheus, wanted: Sequence[tuple[str, str]]) -> None:
    def missing() -> list[tuple[str, str]]:
        return [(where, one) for where, one in wanted if not prometheus.query(one)]

    wait_for(lambda: not missing(), 180, every=0.5, about=missing)
