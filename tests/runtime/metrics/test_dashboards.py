"""Dashboards, alert rules and pages of docs name metrics, states, alerts and rights that there are."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from planner.render.reports.drill import metrics
from runtime.contract.records.job_status import PartitionState
from runtime.contract.results.status import DOWN, STALLED, STATES, UNKNOWN, next_step
from runtime.metrics.families import FAMILIES
from tests.planner.render.test_reports import FOUND, report
from tests.rights import rights
from tests.runtime.metrics.expressions import ALERTS, BOARDS, DOCS, alerts, expressions

# What jobs serve, and what `repl drill --metrics` writes to a file.
DRILLS = re.findall(r"^# TYPE (\w+)", metrics(replace(report(FOUND), every_ms=1_000), 1.0, 1.0), re.MULTILINE)
KNOWN = {family.name: family.labels for family in FAMILIES} | dict.fromkeys(DRILLS, ("topology",))


def metrics_in(expression: str) -> Iterator[str]:
    for name in re.findall(r"\brepl_[a-z_]+", expression):
        yield re.sub(r"_(bucket|sum|count)$", "", name) if "latency" in name else name


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_names_metrics_and_labels_that_there_are(expression: str):
    for name in metrics_in(expression):
        assert name in KNOWN, name
    for name, matchers in re.findall(r"\b(repl_[a-z_]+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*[=!]~?\"", matchers)) - {"instance"}
        assert labels <= set(KNOWN[next(metrics_in(name))]), name


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_panels_are_whole(board):
    whole: dict[str, Any] = json.loads(board.read_text())
    panels = [panel for panel in whole["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in whole["panels"]}) == len(whole["panels"])
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_board_is_what_grafana_reads(board):
    """Grafana's own types read every key and write it again. They lack one that Grafana itself writes."""
    register_default_plugins()
    given = json.loads(board.read_text())
    read = json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))
    assert [one for one in _left_out(given, read) if not one.endswith(".definition")] == []


def _left_out(given: Any, read: Any, at: str = "") -> Iterator[str]:
    """The places of a tree that another lacks, or has with another value."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key in read:
                yield from _left_out(value, read[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}"
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from _left_out(one, other, f"{at}[{number}]")
    elif given != read:
        yield at


def test_what_a_reader_of_boards_loses_is_found() -> None:
    given = {"a": [{"b": 1, "c": 2}], "d": [1, 2], "e": "x", "f": None}
    read = {"a": [{"b": 3}], "d": [1], "e": "x"}
    assert list(_left_out(given, read)) == [".a[0].b", ".a[0].c", ".d", ".f"]


def test_states_that_need_someone_are_all_named():
    wanted = "|".join(state for state in PartitionState if state.needs_decision)
    overview = next(board for board in BOARDS if board.stem == "overview")
    assert f'state=~"{wanted}"' in ALERTS.read_text()
    assert f'state=~\\"{wanted}\\"' in overview.read_text()


def test_every_alert_stands_in_the_docs():
    page = (DOCS / "troubleshooting.md").read_text()
    for rule in alerts():
        summary, severity = rule["annotations"]["summary"], rule["labels"]["severity"]
        assert f"| `{rule['alert']}` | {summary} | {severity} |" in page
    assert yaml.safe_load(ALERTS.read_text())["groups"][0]["name"] == "repl"


# docs/troubleshooting.md knows every state, and docs/operations.md the rights

PAGE = (DOCS / "troubleshooting.md").read_text()


@pytest.mark.parametrize("state", STATES)
def test_every_state_means_and_asks_for_what_the_table_says(state: str):
    row = re.search(rf"^\| `{state}` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert row is not None
    means, todo = row.groups()
    assert means == STATES[state].means
    step = next_step(state, "FLOW", "TOPIC", "PARTITION")
    assert todo.replace("`", "").startswith(step.replace("`", ""))
    assert len(todo) > 3


def test_every_state_is_in_the_table_and_each_that_needs_someone_has_a_next_step():
    assert set(STATES) == {*PartitionState, DOWN, STALLED, UNKNOWN}
    waits = [one for one in PartitionState if one.needs_decision] + [DOWN, STALLED]
    assert all(next_step(state, "f", "t", 0) for state in waits)
    lost = [one for one in PartitionState if one.over_loss]
    assert {next_step(state, "f", "t", 0) for state in lost} == {"repl resume f --accept-loss"}


def test_no_step_of_a_flow_with_files_uses_a_key_that_it_lacks():
    states = PartitionState
    steps = [next_step(one, "f", "t", 0, "into") for one in (states.RECORD_CORRUPT, states.RECORD_INVALID)]
    steps += [next_step(one, "f", "t", 0, "from") for one in (states.RECORD_CORRUPT, states.RECORD_REFUSED)]
    assert all(step and "restart_from" not in step for step in steps)


@pytest.mark.parametrize("state", [one for one in PartitionState if one.needs_decision])
def test_the_alert_names_the_next_step(state: PartitionState):
    """As Prometheus's template does: the words behind the branch of the state."""
    (rule,) = [one for one in alerts() if one["alert"] == "ReplPartitionNeedsSomeone"]
    branches = re.findall(
        r"{{ (?:else )?if eq \$labels\.state ([^}]+) }}(.*?)(?={{ (?:else|end))",
        rule["annotations"]["description"],
    )
    told = {name: words for names, words in branches for name in re.findall(r'"(\w+)"', names)}
    flow = "{{ $labels.flow }}"
    assert told[state].replace(flow, "FLOW") == next_step(state, "FLOW", "TOPIC", "PARTITION")


def test_alerts_of_jobs_and_losses_name_their_commands():
    told = {one["alert"]: one["annotations"]["description"] for one in alerts()}
    assert f"Next: {next_step(DOWN, 'f', 't', 0)}" in told["ReplJobDown"]
    lost = next_step(PartitionState.DATA_LOSS, "{{ $labels.flow }}", "t", 0)
    assert f"Next: {lost}" in told["ReplDataLoss"]


@pytest.mark.parametrize(
    "heading", ["To plan", "To apply", "A job, at its sources", "A job, at its destination"]
)
def test_rights_are_told_as_the_tests_read_them(heading: str):
    found = rights(heading, "mine-")
    assert any(one.resource == "TOPIC" and one.name == "__repl." and one.prefixed for one in found)
    assert all(one.operations for one in found)
