"""Order comes from `needs` alone; what can go together goes together."""

from collections.abc import Iterable

from planner.apply.executor import Schedule
from planner.apply.handlers import HANDLERS
from planner.kafka.changes import ACCEPTED_RECORDS, MAX_RECORDS, MAX_STEPS, batches
from planner.model.address import topic_address
from planner.model.observed import RegistryEntry
from planner.model.step import DONE, Step, StepResult, failed
from planner.plan.steps import KINDS
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import CreateTopic, GrowPartitions, Reassign
from tests.fakes.replacing import replace


def create(
    name: str, cluster: str = "dc1", partitions: int | None = 1, needs: tuple[str, ...] = ()
) -> CreateTopic:
    address = topic_address(cluster, name)
    return CreateTopic(f"create {name}", address, cluster, name, partitions, None, {}, needs=needs)


def own(name: str, needs: tuple[str, ...] = ()) -> Own:
    address = topic_address("dc1", name)
    return Own(f"own {name}", address, "dc1", RegistryEntry(address, "t"), needs=needs)


def ids(batched: Iterable[list[Step]]) -> list[list[str]]:
    return [[step.id for step in batch] for batch in batched]


def done(*steps: Step) -> list[tuple[Step, StepResult]]:
    return [(step, DONE) for step in steps]


def test_what_needs_nothing_goes_at_once_and_only_once():
    schedule = Schedule([create("a"), create("b")])
    assert ids(schedule.next_batches()) == [["create a", "create b"]]
    assert schedule.next_batches() == []


def test_a_step_waits_for_all_it_needs():
    a, b = create("a"), create("b")
    schedule = Schedule([a, b, own("x", needs=("create a", "create b"))])
    schedule.next_batches()
    assert schedule.finish(done(a)) == []
    assert schedule.next_batches() == []
    schedule.finish(done(b))
    assert ids(schedule.next_batches()) == [["own x"]]


def test_a_failure_skips_everything_behind_it_and_nothing_else():
    a, b = create("a"), create("b")
    schedule = Schedule([a, b, own("a", ("create a",)), own("a2", ("own a",)), own("b", ("create b",))])
    schedule.next_batches()
    skipped = schedule.finish([(a, failed("refused")), *done(b)])
    assert {step.id: result.why for step, result in skipped} == {
        "own a": "because create topic.dc1.a was not done",
        "own a2": "because create topic.dc1.a was not done",
    }
    assert ids(schedule.next_batches()) == [["own b"]]
    assert schedule.not_started() == []


def test_what_was_never_handed_out_is_the_rest():
    a = create("a")
    schedule = Schedule([a, own("a", ("create a",))])
    assert [step.id for step in schedule.not_started()] == ["create a", "own a"]
    schedule.next_batches()
    assert [step.id for step in schedule.not_started()] == ["own a"]


def test_a_need_outside_the_plan_is_no_obstacle():
    assert ids(Schedule([own("a", ("elsewhere",))]).next_batches()) == [["own a"]]


def test_batches_are_of_one_cluster_and_one_kind():
    grow = GrowPartitions("grow", topic_address("dc1", "g"), "dc1", "g", 1, 2)
    assert ids(batches([create("a"), create("b", "dc2"), grow, create("c")])) == [
        ["create a", "create c"],
        ["create b"],
        ["grow"],
    ]


def test_batches_stay_below_what_a_broker_takes():
    many = [create(f"t{index}") for index in range(MAX_STEPS * 2 + 1)]
    assert [len(batch) for batch in batches(many)] == [MAX_STEPS, MAX_STEPS, 1]
    wide = [create(f"w{index}", partitions=MAX_RECORDS // 2 - 1) for index in range(5)]
    assert [len(batch) for batch in batches(wide)] == [2, 2, 1]
    assert [len(batch) for batch in batches([create("huge", partitions=20_000), create("a")])] == [1, 1]
    address = topic_address("dc1", "g")
    grown = [GrowPartitions(f"g{index}", address, "dc1", "g", 1, MAX_RECORDS // 2 + 1) for index in range(3)]
    assert [len(batch) for batch in batches(grown)] == [2, 1]
    moved = [
        Reassign(f"r{index}", address, "dc1", "g", ((1,),) * 2_000, ((2,),) * 2_000) for index in (1, 2, 3)
    ]
    assert [len(batch) for batch in batches(moved)] == [2, 1]


def test_settings_of_new_topics_count_as_partitions_do() -> None:
    settings = {f"key.{number}": "1" for number in range(30)}
    topics = [replace(create(f"t{number}", partitions=20), config=settings) for number in range(250)]
    assert max(sum(step.metadata_records for step in batch) for batch in batches(topics)) <= MAX_RECORDS


def test_a_check_asks_as_much_at_once_as_a_broker_accepts() -> None:
    topics = [create(f"t{number}") for number in range(2_000)]
    (accepted,) = batches(topics, len(topics), ACCEPTED_RECORDS)
    assert len(accepted) == 2_000
    wide = [create(f"w{number}", partitions=ACCEPTED_RECORDS - 1) for number in range(2)]
    assert [len(batch) for batch in batches(wide, len(wide), ACCEPTED_RECORDS)] == [1, 1]


def test_every_kind_of_step_is_carried_out() -> None:
    assert HANDLERS.keys() == set(KINDS)


def test_registry_entries_are_one_batch_however_many() -> None:
    assert len(list(batches(own(f"t{index}") for index in range(MAX_RECORDS + 1)))) == 1
