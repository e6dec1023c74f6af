"""Edge, read-only: lets the brokers check what a plan does to topics and quotas (validate_only).

What a broker refuses (by its policies, unknown keys, impossible numbers) is an error of the plan at the
address. So is what changed between reading and checking; its own code makes the planner read again. If the
caller may read and not alter, that is a warning: another principal may apply.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from msgspec import Struct

from planner.graph.messages import few
from planner.kafka import ClusterEndpoint, admin, explain, is_transient
from planner.kafka.admin_requests import LimitsChange, alter_quotas
from planner.kafka.clients import error_of
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.setting_types import TOPIC_SETTINGS
from planner.model.step import Step
from planner.observe.observer import for_each
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.topics import AlterConfigs, CreateTopic, GrowPartitions

RECORDS_A_REQUEST = 9_000  # metadata records; brokers refuse a request that makes more than 10,000
BROKER_OUTDATED = "broker-outdated"
UNDECLARED_PARTITIONS = 10  # assumed for a topic without a number, for the size of a request
MAY_NOT = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN_SETTING = re.compile(r"Unknown topic config name: (\S+)")

# Errors by which the controller shows a change that the brokers did not show when they were read.
OUTDATED: Mapping[type[Step], int] = {
    CreateTopic: KafkaError.TOPIC_ALREADY_EXISTS,
    GrowPartitions: KafkaError.INVALID_PARTITIONS,
    AlterConfigs: KafkaError.UNKNOWN_TOPIC_OR_PART,
}

TopicStep = CreateTopic | AlterConfigs | GrowPartitions
Checkable = TopicStep | AlterQuota
Refusal = tuple[Checkable, BaseException]


def verify_on_broker(
    steps: Iterable[Step], endpoints: Mapping[str, ClusterEndpoint], timeout_s: float
) -> tuple[Diagnostic, ...]:
    """Returns what the brokers object to in these steps. All clusters are asked at once."""
    checkable: dict[str, list[Checkable]] = {}
    for step in steps:
        if isinstance(step, Checkable) and step.cluster in endpoints:
            checkable.setdefault(step.cluster, []).append(step)
    found = for_each(
        {name: _checking(endpoints[name], asked, timeout_s) for name, asked in sorted(checkable.items())}
    )
    return diagnostics(found)


def _checking(
    endpoint: ClusterEndpoint, steps: Sequence[Checkable], timeout_s: float
) -> Callable[[], list[Refusal]]:
    def check() -> list[Refusal]:
        client = admin(endpoint, socket_timeout_ms=int(timeout_s * 1000))
        topics = [step for step in steps if not isinstance(step, AlterQuota)]
        refused = [one for batch in batches(topics) for one in _ask(client, batch, timeout_s)]
        quotas = [step for step in steps if isinstance(step, AlterQuota)]
        return [*refused, *(_ask_about_quotas(endpoint, quotas, timeout_s) if quotas else ())]

    return check


def _ask_about_quotas(
    endpoint: ClusterEndpoint, steps: Sequence[AlterQuota], timeout_s: float
) -> Iterator[Refusal]:
    changes = [LimitsChange(step.entity, step.set, step.unset) for step in steps]
    try:
        answers = alter_quotas(endpoint, changes, validate_only=True, timeout_s=timeout_s)
    except KafkaException as failure:
        yield steps[0], failure
        return
    yield from ((step, refusal) for step, refusal in zip(steps, answers, strict=True) if refusal is not None)


def batches(steps: Sequence[TopicStep]) -> Iterator[list[TopicStep]]:
    """Yields batches of one kind of step, none larger than a broker accepts."""
    for _, alike in groupby(sorted(steps, key=lambda step: (type(step).__name__, step.id)), key=type):
        batch: list[TopicStep] = []
        records = 0
        for step in alike:
            weight = _records(step)
            if batch and records + weight > RECORDS_A_REQUEST:
                yield batch
                batch, records = [], 0
            batch.append(step)
            records += weight
        yield batch


def _records(step: TopicStep) -> int:
    """Returns how many metadata records a broker writes for the step."""
    match step:
        case CreateTopic():
            return 1 + (step.partitions or UNDECLARED_PARTITIONS) + len(step.config)
        case GrowPartitions():
            return step.new - step.old
        case AlterConfigs():
            return len(step.set) + len(step.unset)


def _ask(client: AdminClient, batch: Sequence[TopicStep], timeout_s: float) -> Iterator[Refusal]:
    """Yields the refused steps. A broker that does not answer is reported once."""
    for step, future in zip(batch, _futures(client, batch, timeout_s), strict=True):
        try:
            future.result(timeout_s * 2)
        except (KafkaException, TimeoutError) as failure:
            yield step, failure
            if is_transient(failure):
                return


def _futures(client: AdminClient, batch: Sequence[TopicStep], timeout_s: float) -> list["Future[None]"]:
    options = {"validate_only": True, "request_timeout": timeout_s}
    first = batch[0]
    match first:
        case CreateTopic():
            asked = client.create_topics(
                [_new_topic(one) for one in batch if isinstance(one, CreateTopic)], **options
            )
            return [asked[one.topic] for one in batch]
        case GrowPartitions():
            grown = [NewPartitions(one.topic, one.new) for one in batch if isinstance(one, GrowPartitions)]
            asked = client.create_partitions(grown, **options)
            return [asked[one.topic] for one in batch]
        case AlterConfigs():
            resources = [_resource(one) for one in batch if isinstance(one, AlterConfigs)]
            answered = client.incremental_alter_configs(resources, **options)
            return [answered[resource] for resource in resources]


def _new_topic(step: CreateTopic) -> NewTopic:
    """Returns the topic to create; -1 leaves a number to the broker."""
    return NewTopic(
        step.topic,
        num_partitions=step.partitions if step.partitions is not None else -1,
        replication_factor=step.replication if step.replication is not None else -1,
        config=dict(step.config),
    )


def _resource(step: AlterConfigs) -> ConfigResource:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in step.set.items()
    ]
    entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in step.unset]
    return ConfigResource(ResourceType.TOPIC, step.topic, incremental_configs=entries)


def diagnostics(refusals: Mapping[str, Sequence[Refusal]]) -> tuple[Diagnostic, ...]:
    """Turns refusals into errors of the plan, and unchecked steps into warnings."""
    kinds = {cluster: _sorted(refused) for cluster, refused in refusals.items()}
    return (
        *_unknown_settings(kinds),
        *(one for cluster, some in kinds.items() for one in _of_cluster(cluster, some)),
    )


class _Sorted(Struct, frozen=True):
    """The refusals of one cluster by kind. `unknown`: by the name of a setting that its brokers
    do not know.
    """

    unknown: dict[str, list[Refusal]]
    outdated: list[Refusal]
    refused: list[Refusal]
    not_allowed: list[Refusal]
    not_asked: list[Refusal]


def _unknown_settings(refusals: Mapping[str, _Sorted]) -> Iterator[Diagnostic]:
    """Yields one error for each unknown setting. A mirror takes its source's settings, so many topics may
    share it.
    """
    for key in sorted({key for kinds in refusals.values() for key in kinds.unknown}):
        found = {cluster: kinds.unknown[key] for cluster, kinds in refusals.items() if key in kinds.unknown}
        addresses = [str(step.address) for refused in found.values() for step, _ in refused]
        near = difflib.get_close_matches(key.lower(), TOPIC_SETTINGS, n=1)
        yield error(
            f'{few(sorted(found))}: there is no topic setting "{key}" ({few(addresses)})',
            f'did you mean "{near[0]}"?' if near else "declare settings that the brokers know",
            address=addresses[0],
            code="broker-refusal",
        )


def _of_cluster(cluster: str, kinds: _Sorted) -> Iterator[Diagnostic]:
    for step, failure in kinds.outdated:
        yield error(
            f"the controller of {cluster} knows another state than its brokers returned: {explain(failure)}",
            "plan again; if this repeats, the brokers do not receive metadata changes: see their logs",
            address=str(step.address),
            code=BROKER_OUTDATED,
        )
    for step, failure in kinds.refused:
        yield error(
            f"{cluster} refuses it: {explain(failure)}",
            "declare what the brokers allow, or ask their operators",
            address=str(step.address),
            code="broker-refusal",
        )
    if kinds.not_allowed:
        addresses = [str(step.address) for step, _ in kinds.not_allowed]
        yield warning(
            f"{few(addresses)}: not checked on the broker, "
            f"because this principal has no right to alter them ({explain(kinds.not_allowed[0][1])})",
            "plan with the principal that applies, to have them checked",
            code="broker-check",
        )
    if kinds.not_asked:
        yield warning(
            f"{cluster} did not check the plan: {explain(kinds.not_asked[0][1])}",
            "plan again when it answers",
            code="broker-check",
        )


def _sorted(refusals: Sequence[Refusal]) -> _Sorted:
    kinds = _Sorted({}, [], [], [], [])
    for refusal in refusals:
        found = error_of(refusal[1])
        if found is not None and found.code() in MAY_NOT:
            kinds.not_allowed.append(refusal)
        elif found is None or is_transient(refusal[1]):
            kinds.not_asked.append(refusal)
        elif unknown := _UNKNOWN_SETTING.search(found.str() or ""):
            kinds.unknown.setdefault(unknown[1], []).append(refusal)
        elif found.code() == OUTDATED.get(type(refusal[0])):
            kinds.outdated.append(refusal)
        else:
            kinds.refused.append(refusal)
    return kinds
