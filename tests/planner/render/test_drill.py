"""The report of a drill: what it says of kept and broken promises, in each of its forms."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from planner.model.drill import LIVE, DrillReport, Promise, Scenario, Step
from planner.render.reports.drill import as_json, history_screen, junit, metrics, page, screen, summary

KEPT = Promise("both sides hold the same records, each once", "0 different", "0 different", True)
BROKEN = Promise("RTO", "at most 5 s", "7.0 s", False, "the failover takes too long for this limit")
STEPS = (
    Step(0.0, 4.0, "the topology is applied", "repl apply --auto-approve", "Applied.\n"),
    Step(4.0, 6.5, "dc1 <b> is killed"),
)
FOUND = Scenario("dc1 is lost", "dc1", STEPS, (KEPT, BROKEN), 7.0, 12, 0, 0)


def report(*scenarios: Scenario) -> DrillReport:
    return DrillReport("shop", "sha256:0a1b", "2026-11-22T10:00:00Z", "0.1", ("replication is 1",), scenarios)


def shown(*scenarios: Scenario) -> str:
    return "\n".join(line.plain for line in screen(report(*scenarios)))


def test_the_screen_says_which_promise_broke_and_why() -> None:
    text = shown(FOUND)
    assert "dc1 is lost: failed (RTO 7.0 s, RPO 12 records, read again 0, skipped 0)" in text
    assert "BROKEN RTO: 7.0 s (wanted: at most 5 s); the failover takes too long for this limit" in text
    assert text.endswith("The drill failed: 1 promise broken.")


def test_a_drill_passes_when_every_promise_was_kept() -> None:
    passed = Scenario("dc1 is lost", "dc1", STEPS, (KEPT,), 3.0, 0, 0, 0)
    assert summary(report(passed)) == "The drill passed: 1 scenario, every promise kept."
    assert report(passed).passed
    assert not report().passed
    assert "nothing to rehearse" in summary(report())


def test_a_step_that_failed_is_an_error_of_the_scenario() -> None:
    ended = Scenario("dc1 is lost", "dc1", STEPS, (), problem="repl failover failed\x00 with exit code 1")
    assert "FAILED repl failover failed" in shown(ended)
    assert "1 scenario could not be finished" in summary(report(ended))
    (suite,) = ElementTree.fromstring(junit(report(ended)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "1")


def test_the_screen_shows_the_first_and_the_last_lines_of_a_problem() -> None:
    lines = ["repl apply failed:", *(f"step {number}" for number in range(30)), "error: no right\x1b[2J"]
    ended = Scenario("dc1 is lost", "dc1", STEPS, (), problem="\n".join(lines))
    found = [line for line in shown(ended).splitlines() if line.startswith("  ")]
    assert found[0] == "  FAILED repl apply failed:"
    assert found[1:3] == ["         …", "         step 21"]
    assert found[-1] == "         error: no right\\u001b[2J"
    assert len(found) == 12


def test_the_page_says_against_which_clusters_the_drill_ran() -> None:
    assert "rehearsed on lab clusters" in page(report(FOUND))
    assert "read from the live clusters" in page(replace(report(FOUND), against=LIVE))


def test_every_promise_is_a_test_of_the_suite() -> None:
    (suite,) = ElementTree.fromstring(junit(report(FOUND)))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert suite.get("time") == "10.5"
    (failure,) = suite.iter("failure")
    assert "wanted at most 5 s, measured 7.0 s" in str(failure.get("message"))


def test_the_page_shows_outputs_as_text() -> None:
    text = page(report(FOUND))
    assert "dc1 &lt;b&gt; is killed" in text
    assert "<b>" not in text
    assert "script" not in text


def test_the_page_shows_the_lines_of_a_problem_and_outputs_below_their_steps() -> None:
    ended = replace(FOUND, problem="repl failover failed\nerror: dc2 <b> does not answer")
    text = page(report(ended))
    assert "repl failover failed<br>error: dc2 &lt;b&gt; does not answer" in text
    assert '<tr class="output"><td colspan="3"><details>' in text


@pytest.mark.parametrize(
    ("scenario", "success"), [(FOUND, None), (Scenario("a", "a", (), (KEPT,)), 1_795_000_000.0)]
)
def test_metrics_keep_the_last_success(scenario: Scenario, success: float | None) -> None:
    text = metrics(report(scenario), 1_795_000_000.0, 604_800_000, None)
    assert 'repl_drill_last_run_timestamp{topology="shop"} 1795000000\n' in text
    assert ("repl_drill_last_success_timestamp" in text) is (success is not None)
    assert 'repl_drill_every_seconds{topology="shop"} 604800\n' in text
    later = metrics(report(FOUND), 1_795_000_500.0, None, 1_795_000_000.0)
    assert 'repl_drill_last_success_timestamp{topology="shop"} 1795000000\n' in later


def test_the_history_compares_the_largest_figures_with_those_of_the_drill_before() -> None:
    better = Scenario("dc1 is lost", "dc1", STEPS, (KEPT, replace(BROKEN, kept=True)), 5.5, 2, 0, 0)
    trees = [as_json(report(FOUND, Scenario("b", "b", (), ()))), as_json(report(better))]
    _, first, second = [line.plain for line in history_screen(trees, ["not signed"] * 2, None)]
    assert first.split()[:7] == ["2026-11-22T10:00:00Z", "lab", "failed", "2", "7.0", "s", "12"]
    assert second.endswith("RTO -1.5 s; RPO -10; kept again: dc1 is lost: RTO")


def test_a_promise_that_a_drill_did_not_try_is_not_kept_again() -> None:
    trees = [as_json(report(FOUND)), as_json(report(Scenario("b", "b", STEPS, (KEPT,))))]
    _, _, second = [line.plain for line in history_screen(trees, ["not signed"] * 2, None)]
    assert "kept again" not in second


def test_a_drill_is_compared_with_the_one_before_of_its_kind() -> None:
    live = replace(report(Scenario("dc1 would be lost now", "dc1", (), (KEPT,), 1.0, 5)), against=LIVE)
    better = Scenario("dc1 is lost", "dc1", STEPS, (KEPT, replace(BROKEN, kept=True)), 5.5, 2, 0, 0)
    trees = [as_json(one) for one in (report(FOUND), live, report(better))]
    _, _, second, third = [line.plain for line in history_screen(trees, ["not signed"] * 3, None)]
    assert second.split()[1:3] == ["live", "passed"]
    assert second.endswith("not signed")
    assert third.endswith("RTO -1.5 s; RPO -10; kept again: dc1 is lost: RTO")


def test_metrics_of_a_live_drill_do_not_silence_the_alert() -> None:
    live = replace(report(Scenario("dc1 would be lost now", "dc1", (), (KEPT,), 1.0, 5)), against=LIVE)
    samples = [one for one in metrics(live, 100.0, 5_000, 7.0).splitlines() if not one.startswith("#")]
    assert samples == [
        'repl_drill_live_last_run_timestamp{topology="shop"} 100',
        'repl_drill_live_passed{topology="shop"} 1',
        'repl_drill_live_rto_seconds{topology="shop"} 1',
        'repl_drill_live_rpo_records{topology="shop"} 5',
    ]


def test_a_report_names_its_worst_figures_and_its_faults() -> None:
    kept = Scenario("dc2 is lost", "dc2", STEPS, (KEPT,), 3.0, 40, 0, 0)
    cut = Scenario("dc3 is lost", "dc3", STEPS, (), problem="repl failover failed")
    found = report(FOUND, kept, cut)
    assert (found.rto_s, found.rpo_records) == (7.0, 40)
    assert found.faults == (
        "dc1 is lost: RTO: 7.0 s (wanted: at most 5 s)",
        "dc3 is lost: repl failover failed",
    )
    assert (report(cut).rto_s, report(cut).rpo_records) == (None, None)
