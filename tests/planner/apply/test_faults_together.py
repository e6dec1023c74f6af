"""Two applies at one cluster: one waits or refuses; one that slept past its lease sends nothing more."""

import os
import signal

import pytest
from confluent_kafka.admin import AdminClient

from tests.commands import begin, repl
from tests.planner.apply.cut import SHORT_LEASE_MS, await_stopped, events, history, registry, start, topic_ids
from tests.records import wait_for
from tests.topologies import at

pytestmark = pytest.mark.integration


@pytest.fixture
def topology(lab, fresh, tmp_path):
    made = at(lab, fresh("shop"), tmp_path)
    made.topic(f"{made.name}-kept", partitions=1)
    made.topic(f"{made.name}-gone", partitions=1, on_remove="delete")
    made.write()
    return made


def test_one_that_slept_past_its_lease_sends_nothing_more(lab, topology):
    """It slept between making the topics and registering them; meanwhile another apply removed one again."""
    sleeper = start(topology.file, SHORT_LEASE_MS, "SIGSTOP")
    await_stopped(sleeper)
    gone, kept = f"{topology.name}-gone", f"{topology.name}-kept"
    assert gone in topic_ids(lab, topology.name)
    adopted = repl("apply", str(topology.file), "--auto-approve")
    assert adopted.returncode == 0, adopted.stderr
    topology.topics = [one for one in topology.topics if one["name"] != gone]
    deleted = repl("apply", str(topology.write()), "--auto-approve")
    assert deleted.returncode == 0, deleted.stderr
    os.kill(sleeper.pid, signal.SIGCONT)
    out, _errors = sleeper.communicate(timeout=120)
    assert sleeper.returncode == 1
    late = [one for one in events(out) if one["event"] == "step" and one["result"] != "done"]
    assert {one["result"] for one in late} == {"not_started"}
    assert all(one["why"].startswith("the lease of dc1 was") for one in late), late
    assert registry(lab, topology).keys() == {kept}
    assert topic_ids(lab, topology.name).keys() == {kept}
    mine = next(one for one in history(lab, topology) if one.pid == sleeper.pid)
    assert mine.result == "failed"
    assert {told.result for told in mine.outcomes.values()} == {"done", "not started"}


def test_one_plan_that_two_apply_at_one_moment_is_carried_out_once(lab, topology, tmp_path):
    """And never again: what was deleted by hand since does not come back by a plan that is over."""
    saved = str(tmp_path / "plan.repl")
    made = repl("plan", str(topology.file), "--out", saved)
    assert made.returncode == 0, made.stderr
    both = [begin("apply", saved) for _ in range(2)]
    told = [(*one.communicate(timeout=240), one.returncode) for one in both]
    assert [code for _, _, code in told] == [0, 0], told
    ids = topic_ids(lab, topology.name)
    assert ids.keys() == {f"{topology.name}-gone", f"{topology.name}-kept"}
    done = [
        step_id
        for applied in history(lab, topology)
        for step_id, outcome in applied.outcomes.items()
        if outcome.result == "done"
    ]
    assert sorted(done) == sorted(set(done))

    admin = AdminClient(lab.clusters["dc1"].client)
    admin.delete_topics([f"{topology.name}-gone"])[f"{topology.name}-gone"].result(60)
    wait_for(lambda: f"{topology.name}-gone" not in topic_ids(lab, topology.name))
    again = repl("apply", saved)
    assert again.returncode == 4, (again.stdout, again.stderr)
    assert topic_ids(lab, topology.name) == {f"{topology.name}-kept": ids[f"{topology.name}-kept"]}
