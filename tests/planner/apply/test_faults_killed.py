"""kill -9 at every step and at any moment: the next apply brings the same end, and nothing comes twice."""

import random
import re
import threading
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from planner.model.observed import ID
from planner.model.step import ApplyRecord, Result
from planner.state import planfile
from tests.commands import repl
from tests.planner.apply.cut import history, killed_after, plan_now, registry, start, topic_ids
from tests.records import wait_for
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
    told = lab.tool("dc1", "TopicCommand", "--describe", "--topic", f"{name}.*")
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


@pytest.mark.long
def test_killed_at_any_moment(lab, rounds):
    moments = random.Random(5)  # the same moments in every run
    for number in range(1, 4):
        rounds.turn(number)
        process = start(rounds.topology.file)
        cut = threading.Timer(moments.uniform(0.6, 1.8), process.kill)
        cut.start()
        process.communicate()
        cut.join()
        before = topic_ids(lab, rounds.name)
        done = repl("apply", str(rounds.topology.file), "--auto-approve")
        assert done.returncode == 0, done.stderr
        assert_as_declared(lab, rounds, before)


MANY = 800
ROUNDS = 3


@pytest.mark.long
def test_killed_in_the_middle_of_many_creates(lab, fresh, tmp_path):
    """Topics that are still being made are waited for: the next apply, begun at once, makes the rest."""
    admin = AdminClient(lab.clusters["dc1"].client)
    for number in range(ROUNDS):
        topology = at(lab, fresh("many"), tmp_path)
        topology.more = {"policies": {"max_deletes": MANY}}
        for which in range(MANY):
            topology.topic(f"{topology.name}-{which:03}", partitions=2, on_remove="delete")
        process = start(topology.write())
        wanted = MANY * (number + 1) // (ROUNDS + 2)
        wait_for(partial(are_made, admin, topology.name, wanted))
        process.kill()
        done = repl("apply", str(topology.file), "--auto-approve")
        process.communicate()
        assert done.returncode == 0, done.stderr
        assert len(made(admin, topology.name)) == MANY
        assert plan_now(topology.file).steps == ()
        assert repl("destroy", str(topology.file), "--auto-approve").returncode == 0


def are_made(admin: AdminClient, prefix: str, wanted: int) -> bool:
    return len(made(admin, prefix)) >= wanted


def made(admin: AdminClient, prefix: str) -> list[str]:
    return [name for name in admin.list_topics(timeout=60).topics if name.startswith(f"{prefix}-")]
