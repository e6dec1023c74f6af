"""Alert rules and what is served, judged by Prometheus's own tool."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from runtime.contract.records.job_status import FlowStats
from runtime.metrics.endpoint import JobCollector
from runtime.metrics.snapshot import GroupSnapshot, SlotMetrics
from tests.prometheus import promtool
from tests.runtime.metrics.expressions import ALERTS, alerts
from tests.runtime.metrics.given import NOW_MS, flow, partition, picture, report, running

pytestmark = [pytest.mark.integration, pytest.mark.long]
CASES = Path(__file__).with_name("alerts.test.yaml")


def test_the_rules_are_well_formed():
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_when_it_must_and_none_when_all_is_well(tmp_path: Path):
    cases = CASES.read_text()
    assert all(f'alertname="{rule["alert"]}"' in cases for rule in alerts())
    file = tmp_path / "cases.yaml"
    file.write_text(cases.replace("[ALERTS]", f"['{ALERTS}']"))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_names_and_help_are_as_prometheus_wants_them():
    book = SlotMetrics()
    one = report(partition(last_timestamp=NOW_MS, last_commit_ms=NOW_MS), flows=[FlowStats("f")])
    book.record_report(one)
    groups = [GroupSnapshot("f", "app", latency_s=1.0)]
    seen = picture(flow(rpo_ms=1, rate_limit=1), slots=[running()], reports=[one], groups=groups)
    registry = CollectorRegistry()
    registry.register(JobCollector(lambda: seen, book))
    checked = promtool("check", "metrics", given=generate_latest(registry).decode())
    assert checked.returncode == 0, checked.stdout + checked.stderr
