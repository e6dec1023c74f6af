"""The endpoint over real HTTP."""

import gzip
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.metrics.endpoint import JobCollector, MetricsEndpoint
from runtime.metrics.snapshot import SlotMetrics
from tests.runtime.metrics.given import flow, partition, picture, report, running


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


def test_metrics_are_served_as_prometheus_reads_them(endpoint: MetricsEndpoint):
    status, text = get(endpoint, "/metrics")
    names = {family.name for family in text_string_to_metric_families(text.decode())}
    assert status == 200
    assert {"repl_job_up", "repl_partition_records", "repl_slot_state"} <= names


def test_compressed_where_it_is_asked_for(endpoint: MetricsEndpoint):
    text = gzip.decompress(get(endpoint, "/metrics", **{"Accept-Encoding": "gzip"})[1])
    assert b'repl_job_slots{state="running"} 1.0' in text


def test_alive_and_ready(endpoint: MetricsEndpoint, reasons: list[str]):
    assert get(endpoint, "/healthz") == (200, b"alive\n")
    assert get(endpoint, "/readyz") == (200, b"ready\n")
    reasons += ["one thing", "another"]
    assert get(endpoint, "/readyz") == (503, b"one thing\nanother\n")
    assert get(endpoint, "/healthz") == (200, b"alive\n")


def test_elsewhere_it_says_what_there_is(endpoint: MetricsEndpoint):
    assert get(endpoint, "/") == (404, b"/metrics\n/healthz\n/readyz\n")


def test_a_port_that_is_taken_is_an_error_of_the_system(endpoint: MetricsEndpoint):
    with pytest.raises(OSError, match="in use"):
        MetricsEndpoint("127.0.0.1", endpoint.port, [], list)


def test_closed_it_can_be_opened_again_at_once():
    first = MetricsEndpoint("127.0.0.1", 0, [], list)
    get(first, "/healthz")
    first.close()
    second = MetricsEndpoint("127.0.0.1", first.port, [], list)
    assert get(second, "/healthz")[0] == 200
    second.close()
