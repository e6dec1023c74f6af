"""The endpoint over real HTTP, and when a job is ready."""

import gzip
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from runtime.contract.records.job_status import SlotView
from runtime.metrics.endpoint import JobCollector, MetricsEndpoint
from runtime.metrics.snapshot import FlowSnapshot, JobSnapshot, SlotMetrics, unready
from tests.runtime.metrics.given import MADE_AT, flow, partition, picture, report, running


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def endpoint(reasons: list[str]) -> Iterator[MetricsEndpoint]:
    book, one = SlotMetrics(), report(partition())
    book.record_report(one)
    seen = picture(flow(), slots=[running()], reports=[one])
    made = MetricsEndpoint("127.0.0.1", 0, [JobCollector(lambda: seen, book)], lambda: reasons)
    yield made
    made.close()


def get(endpoint: MetricsEndpoint, path: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def test_metrics_are_served_as_prometheus_reads_them_and_compressed_where_it_is_asked_for(
    endpoint: MetricsEndpoint,
):
    status, text = get(endpoint, "/metrics")
    names = {family.name for family in text_string_to_metric_families(text.decode())}
    assert status == 200
    assert {"repl_job_up", "repl_partition_records", "repl_slot_state"} <= names
    packed = get(endpoint, "/metrics", **{"Accept-Encoding": "gzip"})[1]
    assert b'repl_job_slots{state="running"} 1.0' in gzip.decompress(packed)


def test_alive_and_ready(endpoint: MetricsEndpoint, reasons: list[str]):
    assert get(endpoint, "/healthz") == (200, b"alive\n")
    assert get(endpoint, "/readyz") == (200, b"ready\n")
    reasons += ["one thing", "another"]
    assert get(endpoint, "/readyz") == (503, b"one thing\nanother\n")
    assert get(endpoint, "/healthz") == (200, b"alive\n")


def test_elsewhere_it_says_what_there_is(endpoint: MetricsEndpoint):
    assert get(endpoint, "/") == (404, b"/metrics\n/healthz\n/readyz\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:9404", 200), ("127.0.0.1", 200), ("[::1]:9404", 200), ("pages.example.org", 421)],
)
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_a_page_does_not_read_it_by_a_name_of_its_own(
    endpoint: MetricsEndpoint, path: str, host: str, status: int
):
    assert get(endpoint, path, Host=host)[0] == status


def test_on_a_network_it_is_scraped_by_any_name():
    made = MetricsEndpoint("0.0.0.0", 0, [], list)
    try:
        assert get(made, "/healthz", Host="repl-dc2.monitoring.svc:9404") == (200, b"alive\n")
    finally:
        made.close()


READY = picture(flow(), slots=[running()], reports=[report(partition())])


def noted(seen: FlowSnapshot, why: str) -> FlowSnapshot:
    return replace(seen, view=replace(seen.view, why=why))


def without_a_slot(slot: SlotView) -> JobSnapshot:
    return picture(flow(), slots=[slot], reports=[report(partition())])


@pytest.mark.parametrize(
    ("seen", "later_s", "why"),
    [
        (READY, 0, []),
        (None, 0, ["the job is starting"]),
        # The heartbeat grows old even if the driver hangs.
        (READY, 9, []),
        (picture(trouble="no leader"), 20, ["the last heartbeat is 20 s old: no leader"]),
        (
            picture(state="starting", heartbeat_age_s=float("inf")),
            0,
            ["no heartbeat yet", "the job is starting"],
        ),
        # Of an older life of its slot, and of a slot that waits.
        (without_a_slot(running(attempts=2)), 0, ["flow f: 1 of 1 partitions have no running slot"]),
        (without_a_slot(running(state="waiting")), 0, ["flow f: 1 of 1 partitions have no running slot"]),
        (picture(flow(generation=0)), 0, ["flow f is not taken over yet"]),
        (picture(flow(state="paused", generation=0)), 0, []),
        (picture(flow(partitions=0)), 0, []),  # it matches no topic
        (picture(noted(flow(partitions=0), "no right")), 0, ["flow f has nothing to copy yet: no right"]),
        (
            picture(noted(flow(), "a retry"), slots=[running()], reports=[report(partition())]),
            0,
            [],
        ),
    ],
)
def test_a_job_is_ready_when_every_partition_of_active_flows_has_a_running_slot(
    seen: JobSnapshot | None, later_s: float, why: list[str]
):
    assert unready(seen, MADE_AT + later_s) == why
