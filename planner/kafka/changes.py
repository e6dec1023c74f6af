"""The requests that carry out steps of one kind at a cluster, and what the brokers refused of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from planner.kafka.failures import RequestRefused
from planner.kafka.principals import kafka_entity
from planner.kafka.topics import topic_id_of
from planner.model.step import Step
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import Refusal
from runtime.kafka.protocol.administration import (
    AclBinding,
    AlterClientQuotasRequest,
    AlterReassignmentsRequest,
    QuotaAlteration,
)
from runtime.kafka.protocol.changes import (
    BROKERS_DEFAULT,
    AlterConfigsRequest,
    ConfigAlteration,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    NewTopic,
)
from runtime.kafka.protocol.request import Request

ACCEPTED_RECORDS = 9_000  # brokers refuse a request that makes more than 10,000 metadata records
# Small batches show progress and share the work.
MAX_STEPS = 250
MAX_RECORDS = 5_000


def batches(
    steps: Iterable[Step], most_steps: int = MAX_STEPS, most_records: int = MAX_RECORDS
) -> Iterator[list[Step]]:
    """Yields the steps in batches of one cluster and one kind, none larger than a broker accepts."""
    alike: dict[tuple[str, type[Step]], list[Step]] = defaultdict(list)
    for step in steps:
        alike[step.cluster, type(step)].append(step)
    for group in alike.values():
        batch: list[Step] = []
        records = 0
        for step in group:
            full = len(batch) >= most_steps or records + step.metadata_records > most_records
            if batch and full and not step.in_one_batch:
                yield batch
                batch, records = [], 0
            batch.append(step)
            records += step.metadata_records
        yield batch


Refusals = Sequence[Refusal | None] | Mapping[Any, Refusal] | Refusal
"""What the brokers refused of a request, in the form of each request's result."""


def change_request(
    steps: Sequence[Step], timeout_ms: int, *, validate_only: bool = False
) -> Request[Refusals]:
    """Returns the request for steps of one kind. With `validate_only` the brokers change nothing."""
    batch = cast(Sequence[Any], steps)
    match steps[0]:
        case CreateTopic():
            topics = [
                NewTopic(
                    step.topic,
                    step.partitions or BROKERS_DEFAULT,
                    step.replication or BROKERS_DEFAULT,
                    step.config,
                )
                for step in batch
            ]
            return CreateTopicsRequest(topics, timeout_ms, validate_only)
        case GrowPartitions():
            counts = {step.topic: step.new for step in batch}
            return CreatePartitionsRequest(counts, timeout_ms, validate_only)
        case AlterConfigs():
            alterations = [ConfigAlteration.of(step.topic, step.set, step.unset) for step in batch]
            return AlterConfigsRequest(alterations, validate_only)
        case AlterQuota():
            limits = [
                QuotaAlteration(
                    kafka_entity(step.entity),
                    {key: (limit, False) for key, limit in step.set.items()}
                    | dict.fromkeys(step.unset, (0.0, True)),
                )
                for step in batch
            ]
            return AlterClientQuotasRequest(limits, validate_only)
        case DeleteTopic():
            return DeleteTopicsRequest({step.topic: topic_id_of(step.topic_id) for step in batch}, timeout_ms)
        case CreateAcl():
            return CreateAclsRequest([AclBinding.of(step.rule) for step in batch])
        case DeleteAcl():
            return DeleteAclsRequest([AclBinding.of(step.rule) for step in batch])
        case Reassign():
            replicas = {
                TopicPartition(step.topic, partition): brokers
                for step in batch
                for partition, brokers in enumerate(step.replicas)
            }
            return AlterReassignmentsRequest(replicas, timeout_ms)
        case step:
            raise TypeError(f"no request of Kafka carries out {type(step).__name__}")


def refusals_of(steps: Sequence[Step], refused: Refusals) -> dict[str, RequestRefused]:
    """Returns the refusal of each step that was refused, by the step's id."""
    return {
        step.id: RequestRefused(refusal.error, refusal.message)
        for number, step in enumerate(steps)
        if (refusal := _refusal(cast(Any, step), number, refused)) is not None
    }


def _refusal(step: Any, number: int, refused: Refusals) -> Refusal | None:
    match refused:
        case Refusal():
            return refused
        case Mapping() if isinstance(step, AlterQuota):
            return refused.get(frozenset(kafka_entity(step.entity).items()))
        case Mapping() if isinstance(step, Reassign):
            for place, refusal in refused.items():
                if place.topic == step.topic:
                    text = f"partition {place.partition} of {place.topic}: {refusal.message or ''}"
                    return Refusal(refusal.error, text.rstrip(": "))
            return None
        case Mapping():
            return refused.get(step.topic)
        case _:
            return refused[number]
