"""docs/troubleshooting.md knows every state and every alert, and docs/operations.md the rights."""

import re

import pytest

from runtime.contract.records.job_status import PartitionState
from runtime.contract.views.status_view import DOWN, STALLED, STATES, UNKNOWN, next_step
from tests.rights import rights
from tests.runtime.metrics.expressions import DOCS, alerts

PAGE = (DOCS / "troubleshooting.md").read_text()


@pytest.mark.parametrize("state", STATES)
def test_every_state_means_and_asks_for_what_the_table_says(state: str):
    row = re.search(rf"^\| `{state}` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert row is not None
    means, todo = row.groups()
    assert means == STATES[state].means
    step = next_step(state, "FLOW", "TOPIC", "PARTITION")
    assert todo.replace("`", "").startswith(step)
    assert len(todo) > 3


def test_every_state_is_in_the_table_and_each_that_needs_someone_has_a_next_step():
    assert set(STATES) == {*PartitionState, DOWN, STALLED, UNKNOWN}
    waits = [one for one in PartitionState if one.needs_someone] + [DOWN, STALLED]
    assert all(next_step(state, "f", "t", 0) for state in waits)
    lost = [one for one in PartitionState if one.over_loss]
    assert {next_step(state, "f", "t", 0) for state in lost} == {"repl resume f --accept-loss"}


def test_no_step_of_a_flow_with_files_uses_a_key_that_it_lacks():
    states = PartitionState
    steps = [next_step(one, "f", "t", 0, "into") for one in (states.RECORD_CORRUPT, states.RECORD_INVALID)]
    steps += [next_step(one, "f", "t", 0, "from") for one in (states.RECORD_CORRUPT, states.RECORD_REFUSED)]
    assert all(step and "restart_from" not in step for step in steps)


@pytest.mark.parametrize("state", [one for one in PartitionState if one.needs_someone])
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


@pytest.mark.parametrize("alert", [rule["alert"] for rule in alerts()])
def test_every_alert_has_a_first_look(alert: str):
    assert re.search(rf"^\| `{alert}` \| [^|]+\|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "heading", ["To plan", "To apply", "A job, at its sources", "A job, at its destination"]
)
def test_rights_are_told_as_the_tests_read_them(heading: str):
    found = rights(heading, "mine-")
    assert any(one.resource == "TOPIC" and one.name == "__repl." and one.prefixed for one in found)
    assert all(one.operations for one in found)
