"""Each handler against real brokers: done once, done twice, refused, and never more than was planned."""

import re

import pytest
from confluent_kafka.admin import AdminClient

from planner.apply.context import ApplyContext
from planner.kafka import ClusterClient, run_at
from planner.kafka.principals import read_acls
from planner.kafka.topics import describe_topic, topic_id_text
from planner.model.address import Address, Kind, topic_address
from planner.model.observed import ConfigSource, RegistryEntry
from planner.model.step import DONE, Result, Step, StepResult
from planner.model.topology import AclRule, QuotaEntity
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.registry import Disown, Own
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.changes import DeleteTopicsRequest
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from tests.endpoints import endpoint
from tests.labs import run_tool
from tests.planner.apply import handling
from tests.planner.apply.handling import carried_out
from tests.records import wait_for

pytestmark = pytest.mark.integration


class Notebook:
    """A registry that only remembers what it was told."""

    def __init__(self) -> None:
        self.own: list[RegistryEntry] = []
        self.disown: list[Address] = []

    async def __call__(self, own, disown) -> None:
        self.own += own
        self.disown += disown


def hands_of(lab, cluster: str = "dc1", why: str | None = None) -> ApplyContext:
    return handling.context(endpoint(lab, cluster), Notebook(), why)


@pytest.fixture
def context(lab) -> ApplyContext:
    return hands_of(lab)


def perform(context: ApplyContext, *steps: Step) -> list[StepResult]:
    results = carried_out(context, *steps)
    return [results[step.id] for step in steps]


def create(name: str, partitions: int | None = 2, **config: str) -> CreateTopic:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return CreateTopic(f"create:{name}", topic_address("dc1", name), "dc1", name, partitions, None, settings)


def grow(name: str, new: int) -> GrowPartitions:
    return GrowPartitions(f"grow:{name}", topic_address("dc1", name), "dc1", name, 2, new)


def delete(name: str, topic_id: str) -> DeleteTopic:
    return DeleteTopic(f"delete:{name}", topic_address("dc1", name), "dc1", name, topic_id)


def topics(context: ApplyContext):
    """The topics as librdkafka shows them."""
    return (
        AdminClient({"bootstrap.servers": context.endpoint.bootstrap, **context.endpoint.settings})
        .list_topics(timeout=60)
        .topics
    )


def id_of(context: ApplyContext, name: str) -> str:
    async def read(client: ClusterClient) -> str:
        (topic,) = (await client.ask(AnyMetadataRequest([name]))).topics
        return topic_id_text(topic.id)

    return run_at(context.endpoint, read)


def refused_delete(context: ApplyContext, name: str, topic_id: bytes) -> ErrorCode:
    """Returns the error of a delete by another id than the topic has."""
    request = DeleteTopicsRequest({name: topic_id}, 30_000)
    return run_at(context.endpoint, lambda client: client.ask_controller(request))[name].error


def value(context: ApplyContext, name: str, key: str) -> tuple[str | None, bool]:
    found = run_at(context.endpoint, lambda client: describe_topic(client, name))[key]
    return found.value, found.source is not ConfigSource.TOPIC


def test_topics_are_there_with_leaders_once_create_returns(context, fresh):
    names = [fresh("t") for _ in range(3)]
    assert perform(context, *[create(name) for name in names]) == [DONE] * 3
    known = topics(context)
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


def test_partitions_grow_and_growing_again_is_success(context, fresh):
    name = fresh("t")
    perform(context, create(name))
    assert perform(context, grow(name, 5)) == [DONE]
    assert perform(context, grow(name, 5)) == [DONE]
    assert len(topics(context)[name].partitions) == 5


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
    assert refused_delete(context, name, b"o" * 16) is ErrorCode.UNKNOWN_TOPIC_ID
    assert id_of(context, name) == real
    assert perform(context, delete(name, real)) == [DONE]
    assert name not in topics(context)
    assert perform(context, delete(name, real)) == [DONE], "gone already is as wanted"


def test_the_registry_is_told_what_is_known_only_now(context, fresh):
    name = fresh("t")
    perform(context, create(name))
    address = topic_address("dc1", name)
    assert perform(
        context, Own("own", address, "dc1", RegistryEntry(address, "shop", {"partitions": "2"}))
    ) == [DONE]
    [entry] = context.write_registry.own
    assert entry.spec == {"partitions": "2", "id": id_of(context, name)}
    assert (entry.plan, entry.at_ms) == ("digest", 42)
    assert perform(context, Disown("disown", address, "dc1", "shop")) == [DONE]
    assert context.write_registry.disown == [address]


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
        known = run_at(context.endpoint, read_acls) or ()
        return [rule.operation for rule in known if rule.resource == name]

    wait_for(lambda: left() == ["DESCRIBE"])  # a broker learns of a change a moment after the answer


def test_limits_are_set_and_taken_away_as_kafka_itself_shows_them(lab, context, fresh):
    def alter(entity: QuotaEntity, limits: dict[str, float], *unset: str) -> AlterQuota:
        return AlterQuota("alter", Address(Kind.QUOTA, "dc1", entity.name), "dc1", entity, limits, unset)

    def shown() -> dict[str, float]:
        described = ("--describe", "--entity-type", "users", "--entity-name", name)
        told = run_tool(lab, "dc1", "kafka.admin.ConfigCommand", "--command-config", "{client}", *described)
        return {key: float(value) for key, value in re.findall(r"([a-z_]+)=([0-9.E-]+)", told)}

    name = fresh("loader")
    user, address = QuotaEntity(name), QuotaEntity(ip="not-an-address")
    assert perform(context, alter(user, {"producer_byte_rate": 1e7, "request_percentage": 12.5})) == [DONE]
    assert shown() == {"producer_byte_rate": 1e7, "request_percentage": 12.5}
    assert perform(context, alter(user, {"producer_byte_rate": 5e6}, "request_percentage")) == [DONE]
    assert shown() == {"producer_byte_rate": 5e6}
    [refused] = perform(context, alter(address, {"connection_creation_rate": 5}))
    assert refused.result is Result.FAILED


def test_replicas_move_and_the_step_ends_when_they_are_in_sync(lab_three, fresh):
    context = hands_of(lab_three)
    name = fresh("t")
    perform(context, CreateTopic("c", topic_address("dc1", name), "dc1", name, 2, 1, {}))
    step = Reassign("r", topic_address("dc1", name), "dc1", name, ((1, 2, 3), (2, 3, 1)), ((1,), (2,)))
    assert perform(context, step) == [DONE]
    partitions = topics(context)[name].partitions
    assert [sorted(partitions[index].isrs) for index in (0, 1)] == [[1, 2, 3], [1, 2, 3]]
