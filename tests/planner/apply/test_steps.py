"""Each handler against real brokers: done once, done twice, refused, and never more than was planned."""

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclBindingFilter, ConfigResource, ResourceType

from planner.apply.context import ApplyContext, RequestGuard
from planner.apply.handlers import HANDLERS
from planner.kafka import topic_id_text
from planner.model.address import Address, Kind, topic_address
from planner.model.observed import RegistryEntry
from planner.model.step import DONE, RequestResult, Result, Step
from planner.model.topology import AclRule
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.registry import Disown, Own
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from tests.endpoints import endpoint
from tests.records import wait_for

pytestmark = pytest.mark.integration


class Notebook:
    """A registry that only remembers what it was told."""

    def __init__(self) -> None:
        self.own: list[RegistryEntry] = []
        self.disown: list[Address] = []

    def write(self, own=(), disown=()) -> None:
        self.own += own
        self.disown += disown


def hands_of(lab, cluster: str = "dc1", stop_reason: str | None = None) -> ApplyContext:
    return ApplyContext(
        endpoint(lab, cluster), Notebook(), RequestGuard(lambda: stop_reason), "digest", lambda: 42
    )


@pytest.fixture
def context(lab) -> ApplyContext:
    return hands_of(lab)


def perform(context: ApplyContext, *steps: Step) -> list[RequestResult]:
    verdicts = HANDLERS[type(steps[0])](context, steps)
    return [verdicts[step.id] for step in steps]


def create(name: str, partitions: int | None = 2, **config: str) -> CreateTopic:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return CreateTopic(f"create:{name}", topic_address("dc1", name), "dc1", name, partitions, None, settings)


def grow(name: str, new: int) -> GrowPartitions:
    return GrowPartitions(f"grow:{name}", topic_address("dc1", name), "dc1", name, 2, new)


def delete(name: str, topic_id: str) -> DeleteTopic:
    return DeleteTopic(f"delete:{name}", topic_address("dc1", name), "dc1", name, topic_id)


def id_of(context: ApplyContext, name: str) -> str:
    return topic_id_text(context.client.describe_topics(TopicCollection([name]))[name].result().topic_id)


def value(context: ApplyContext, name: str, key: str) -> tuple[str, bool]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    entry = context.client.describe_configs([resource])[resource].result()[key]
    return entry.value, entry.is_default


def test_topics_are_there_with_leaders_once_create_returns(context, fresh):
    names = [fresh("t") for _ in range(3)]
    assert perform(context, *[create(name) for name in names]) == [DONE] * 3
    known = context.client.list_topics(timeout=60).topics
    assert [len(known[name].partitions) for name in names] == [2, 2, 2]


def test_a_topic_that_exists_as_wanted_is_success(context, fresh):
    step = create(
        fresh("t"),
        retention_ms="1000",
        min_cleanable_dirty_ratio="0.50",
        cleanup_policy="delete,compact",
        preallocate="TRUE",
    )
    assert perform(context, step) == [DONE]
    assert perform(context, step) == [DONE]


def test_a_topic_that_somebody_else_made_otherwise_is_not(context, fresh):
    name = fresh("t")
    perform(context, create(name))
    [verdict] = perform(context, create(name, partitions=3, retention_ms="1000"))
    assert verdict.result is Result.FAILED
    assert "it has 2 partitions instead of 3; retention.ms is 7d instead of 1s" in verdict.why


def test_one_refusal_does_not_touch_its_neighbours(context, fresh):
    good, bad = fresh("t"), fresh("t")
    verdicts = perform(context, create(good), create(bad, retention_ms="never"))
    assert verdicts[0] == DONE
    assert verdicts[1].result is Result.FAILED
    assert "retention.ms" in verdicts[1].why


def test_partitions_grow_and_growing_again_is_success(context, fresh):
    name = fresh("t")
    perform(context, create(name))
    assert perform(context, grow(name, 5)) == [DONE]
    assert perform(context, grow(name, 5)) == [DONE]
    assert len(context.client.list_topics(name, timeout=60).topics[name].partitions) == 5


def test_growing_below_what_is_there_fails(context, fresh):
    name = fresh("t")
    perform(context, create(name, partitions=4))
    [verdict] = perform(context, grow(name, 3))
    assert verdict.result is Result.FAILED


def test_only_the_named_keys_change(context, fresh):
    name = fresh("t")
    perform(context, create(name, retention_ms="1000", segment_ms="5000"))
    step = AlterConfigs(
        "alter", topic_address("dc1", name), "dc1", name, {"retention.ms": "2000"}, ("segment.ms",)
    )
    assert perform(context, step) == [DONE]
    assert perform(context, step) == [DONE]
    assert value(context, name, "retention.ms") == ("2000", False)
    assert value(context, name, "segment.ms") == ("604800000", True)


def test_a_topic_is_deleted_only_if_it_is_the_one_that_was_planned(context, fresh):
    name = fresh("t")
    perform(context, create(name))
    [verdict] = perform(context, delete(name, "AAAAAAAAAAAAAAAAAAAAAA"))
    assert verdict.result is Result.FAILED
    assert "another topic has this name now" in verdict.why
    real = id_of(context, name)
    assert perform(context, delete(name, real)) == [DONE]
    assert name not in context.client.list_topics(timeout=60).topics
    assert perform(context, delete(name, real)) == [DONE], "gone already is as wanted"


def test_nothing_is_sent_past_the_guard(lab, fresh):
    name = fresh("t")
    stop_reason = hands_of(lab, stop_reason="the lease is lost")
    assert perform(stop_reason, create(name)) == [RequestResult(Result.NOT_STARTED, "the lease is lost")]
    assert name not in stop_reason.client.list_topics(timeout=60).topics


def test_the_registry_is_told_what_is_known_only_now(context, fresh):
    name = fresh("t")
    perform(context, create(name))
    address = topic_address("dc1", name)
    assert perform(
        context, Own("own", address, "dc1", RegistryEntry(address, "shop", {"partitions": "2"}))
    ) == [DONE]
    [entry] = context.registry.own
    assert entry.spec == {"partitions": "2", "id": id_of(context, name)}
    assert (entry.plan, entry.at_ms) == ("digest", 42)
    assert perform(context, Disown("disown", address, "dc1", "shop")) == [DONE]
    assert context.registry.disown == [address]


def test_acls_are_created_and_deleted_each_exactly(lab_sasl, fresh):
    context = hands_of(lab_sasl)
    name = fresh("t")
    rules = [
        AclRule("dc1", "TOPIC", name, "PREFIXED", "User:app", "*", operation, "ALLOW")
        for operation in ("READ", "DESCRIBE")
    ]
    creates = [CreateAcl(rule.name, Address(Kind.ACL, "dc1", rule.name), "dc1", rule) for rule in rules]
    assert perform(context, *creates) == [DONE, DONE]
    assert perform(context, *creates) == [DONE, DONE]
    gone = DeleteAcl(rules[0].name, creates[0].address, "dc1", rules[0])
    assert perform(context, gone) == [DONE]
    assert perform(context, gone) == [DONE]

    def left() -> list[str]:
        found = context.client.describe_acls(AclBindingFilter(*_any(name))).result()
        return [binding.operation.name for binding in found]

    wait_for(lambda: left() == ["DESCRIBE"])  # a broker learns of a change a moment after the answer


def _any(name: str):
    from confluent_kafka.admin import AclOperation, AclPermissionType, ResourcePatternType

    return (
        ResourceType.TOPIC,
        name,
        ResourcePatternType.PREFIXED,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def test_replicas_move_and_the_step_ends_when_they_are_in_sync(lab_three, fresh):
    context = hands_of(lab_three)
    name = fresh("t")
    perform(context, CreateTopic("c", topic_address("dc1", name), "dc1", name, 2, 1, {}))
    step = Reassign("r", topic_address("dc1", name), "dc1", name, ((1, 2, 3), (2, 3, 1)), ((1,), (2,)))
    assert perform(context, step) == [DONE]
    partitions = context.client.list_topics(name, timeout=60).topics[name].partitions
    assert [sorted(partitions[index].isrs) for index in (0, 1)] == [[1, 2, 3], [1, 2, 3]]
