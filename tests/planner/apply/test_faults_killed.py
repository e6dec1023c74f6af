"""kill -9 at every step and at any moment: the next apply brings the same end, and nothing comes twice."""

import re
from pathlib import Path

import pytest

from planner.model.observed import ID
from planner.model.step import ApplyRecord, Result
from planner.state import planfile
from tests.commands import repl
from tests.labs import run_tool
from tests.planner.apply.cut import history, killed_after, plan_now, registry, topic_ids
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
LINES = 12  # steps of one round: creates, config, partitions, deletes, each with its registry entry


class Rounds:
    """A topology that changes in every way from round to round."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.name = topology.name

    def turn(self, number: int) -> None:
        self.topology.topics = []
        self.topology.topic(f"{self.name}-set", partitions=1, config={"retention.ms": (number + 1) * HOUR_MS})
        self.topology.topic(f"{self.name}-grown", partitions=number + 1)
        for which in "ab":
            self.topology.topic(f"{self.name}-{which}{number}", partitions=1, on_remove="delete")
        self.topology.write()

    def declared(self) -> dict[str, int]:
        return {one["name"]: one["partitions"] for one in self.topology.topics}


@pytest.fixture
def rounds(lab, fresh, tmp_path: Path) -> Rounds:
    made = Rounds(at(lab, fresh("shop"), tmp_path))
    made.turn(0)
    done = repl("apply", str(made.topology.file), "--auto-approve")
    assert done.returncode == 0, done.stderr
    return made


def assert_as_declared(lab, rounds: Rounds, before: dict[str, str]) -> None:
    """The cluster is as declared, what was made before the kill is still the same, the registry is whole."""
    declared = rounds.declared()
    ids = topic_ids(lab, rounds.name)
    assert ids.keys() == declared.keys()
    assert {name: found for name, found in before.items() if name in declared}.items() <= ids.items()
    entries = registry(lab, rounds.topology)
    assert {name: entry.spec[ID] for name, entry in entries.items()} == ids
    assert plan_now(rounds.topology.file).steps == ()


def described(lab, name: str) -> dict[str, tuple[int, str]]:
    """Partitions and settings as Kafka's own tool tells them."""
    told = run_tool(lab, "dc1", "TopicCommand", "--describe", "--topic", f"{name}.*")
    lines = re.findall(r"Topic: (\S+)\s+TopicId: \S+\s+PartitionCount: (\d+).*Configs: (\S*)", told)
    return {topic: (int(count), configs) for topic, count, configs in lines}


def test_killed_after_each_batch_of_steps(lab, rounds):
    for number in range(1, LINES, 2):  # a batch has up to two steps
        rounds.turn(number)
        assert len(killed_after(rounds.topology.file, number)) >= number
        before = topic_ids(lab, rounds.name)
        done = repl("apply", str(rounds.topology.file), "--auto-approve")
        assert done.returncode == 0, done.stderr
        assert_as_declared(lab, rounds, before)
    found = described(lab, rounds.name)
    assert {name: count for name, (count, _) in found.items()} == rounds.declared()
    assert f"retention.ms={LINES * HOUR_MS}" in found[f"{rounds.name}-set"][1]


def test_a_killed_saved_plan_is_finished_by_itself(lab, rounds, tmp_path):
    """The steps that the journal knows as done are not done again; the plan is not stale by its own work."""
    for number in (2, 7):
        rounds.turn(number)
        saved = tmp_path / "plan.bin"
        planfile.write(plan_now(rounds.topology.file), saved)
        earlier = {one.id for one in history(lab, rounds.topology)}
        killed_after(saved, number)
        before = topic_ids(lab, rounds.name)
        done = repl("apply", str(saved))
        assert done.returncode == 0, done.stderr
        assert_as_declared(lab, rounds, before)
        applies = [one for one in history(lab, rounds.topology) if one.id not in earlier]
        assert_each_step_was_done_once(*applies)


def assert_each_step_was_done_once(killed: ApplyRecord, *finished: ApplyRecord) -> None:
    """Steps end in batches: the last one may have ended before the kill, and then no apply had to finish."""
    steps, done = {step.id for step in killed.steps}, done_by(killed)
    assert killed.result is None
    assert [one.result for one in finished] == ([Result.DONE.value] if done < steps else [])
    for one in finished:
        assert done_by(one) == steps - done


def done_by(applied: ApplyRecord) -> set[str]:
    return {step_id for step_id, told in applied.outcomes.items() if told.result == Result.DONE.value}
