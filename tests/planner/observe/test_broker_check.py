"""The brokers check a plan without changing anything; who may not alter is warned, not refused."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from planner.kafka import ClusterEndpoint, ClusterFailure, run
from planner.kafka.failures import NoAnswer, RequestRefused
from planner.model.address import topic_address
from planner.model.diagnostic import Severity
from planner.model.step import Step
from planner.observe.broker_check import (
    BROKER_OUTDATED,
    diagnostics,
    verify_on_broker,
)
from planner.plan.steps.registry import Disown
from planner.plan.steps.topics import AlterConfigs, CreateTopic, GrowPartitions
from runtime.kafka.errors import ErrorCode
from runtime.lab.lab import Lab
from tests.endpoints import endpoint
from tests.fakes.replacing import replace
from tests.records import create_topic

Fresh = Callable[[str], str]


def create(
    name: str, partitions: int | None = 1, replication: int | None = None, **config: str
) -> CreateTopic:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return CreateTopic(
        f"create:{name}", topic_address("dc1", name), "dc1", name, partitions, replication, settings
    )


def alter(name: str, *unset: str, **config: str) -> AlterConfigs:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return AlterConfigs(f"alter:{name}", topic_address("dc1", name), "dc1", name, settings, unset)


def grow(name: str, old: int, new: int) -> GrowPartitions:
    return GrowPartitions(f"grow:{name}", topic_address("dc1", name), "dc1", name, old, new)


def said(steps: list[Step], *endpoints: ClusterEndpoint) -> list[tuple[str | None, Severity, str]]:
    found = run(verify_on_broker(steps, {one.cluster: one for one in endpoints}, 60.0))
    return [(one.address, one.severity, one.summary) for one in found]


@pytest.mark.parametrize(
    ("step", "failure", "severity", "outdated"),
    [
        (create("t"), RequestRefused(ErrorCode.POLICY_VIOLATION, "no"), Severity.ERROR, False),
        (create("t"), RequestRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), Severity.WARNING, False),
        (create("t"), RequestRefused(ErrorCode.REQUEST_TIMED_OUT), Severity.WARNING, False),
        (create("t"), NoAnswer("it is silent"), Severity.WARNING, False),
        # What changed since it was read has a code of its own.
        (create("t"), RequestRefused(ErrorCode.TOPIC_ALREADY_EXISTS), Severity.ERROR, True),
        (grow("t", 1, 2), RequestRefused(ErrorCode.INVALID_PARTITIONS), Severity.ERROR, True),
        (alter("t"), RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), Severity.ERROR, True),
    ],
)
def test_what_each_answer_means(
    step: Step, failure: ClusterFailure, severity: Severity, outdated: bool
) -> None:
    (found,) = diagnostics({"dc1": [(step, failure)]})

    assert (found.severity, found.code == BROKER_OUTDATED) == (severity, outdated)
    assert found.address == ("topic.dc1.t" if severity is Severity.ERROR else None)


def test_many_that_may_not_be_altered_are_one_warning() -> None:
    refused = RequestRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    (found,) = diagnostics({"dc1": [(create(f"t{number}"), refused) for number in range(5)]})

    assert "topic.dc1.t0, topic.dc1.t1, topic.dc1.t2 and 2 more: not checked" in found.summary


def test_an_unknown_setting_is_reported_once_with_the_nearest_name() -> None:
    """The mirrors of a topic take over its settings: what dc1 refuses, dc2 refuses too."""
    unknown = RequestRefused(ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention.byts")
    at_dc1 = [(create(name), unknown) for name in ("orders", "payments")]
    at_dc2 = [(replace(create("orders"), address=topic_address("dc2", "orders")), unknown)]

    (found,) = diagnostics({"dc1": at_dc1, "dc2": at_dc2})

    assert found.summary == (
        'dc1, dc2: there is no topic setting "retention.byts" '
        "(topic.dc1.orders, topic.dc1.payments, topic.dc2.orders)"
    )
    assert found.hint == 'did you mean "retention.bytes"?'
    assert found.severity is Severity.ERROR


def test_nothing_to_check() -> None:
    assert said([Disown("d", topic_address("dc1", "t"), "dc1", "shop")]) == []
    assert said([create("t")]) == []  # a cluster that is not at hand


@pytest.mark.integration
def test_what_the_broker_takes_and_what_it_refuses(lab: Lab, fresh: Fresh) -> None:
    there, new = fresh("there"), fresh("new")
    create_topic(lab.clusters["dc1"].client, there, partitions=2)
    at = endpoint(lab, "dc1")

    assert (
        said(
            [
                create(new, 3, retention_ms="1"),
                alter(there, "segment.ms", retention_ms="1"),
                grow(there, 2, 4),
            ],
            at,
        )
        == []
    )

    refusals = said(
        [
            create(new, 1, 3),
            create(f"{new}-2", no_such_key="x"),
            alter(there, retention_ms="soon"),
            grow(there, 2, 1),
        ],
        at,
    )
    assert sorted((address, severity) for address, severity, _ in refusals) == [
        (f"topic.dc1.{new}", Severity.ERROR),
        (f"topic.dc1.{new}-2", Severity.ERROR),
        (f"topic.dc1.{there}", Severity.ERROR),
        (f"topic.dc1.{there}", Severity.ERROR),
    ]
    assert refusals[0][2] == f'dc1: there is no topic setting "no.such.key" (topic.dc1.{new}-2)'
    topics = AdminClient(lab.clusters["dc1"].client).list_topics(timeout=60).topics
    assert new not in topics
    assert len(topics[there].partitions) == 2
