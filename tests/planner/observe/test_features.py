"""What API versions say of a broker, and which broker is named as too old."""

import pytest

from planner.model.diagnostic import ExitCode, Severity
from planner.model.observed import (
    FEATURE_INCREMENTAL,
    FEATURE_REASSIGN,
    FEATURE_RECORDS_V2,
    FEATURE_TOPIC_IDS,
    FEATURE_TRANSACTIONS,
)
from planner.observe.brokers import BrokerVersions, common_features, features_of, too_old

# API key → highest version, as these releases of Kafka answer (of the keys that matter).
KAFKA_0_10 = {0: 2, 1: 3, 3: 2}
KAFKA_2_2 = {0: 7, 1: 10, 3: 7, 22: 1, 24: 1, 26: 1}
KAFKA_2_3 = {0: 7, 1: 11, 3: 8, 22: 1, 24: 1, 26: 1, 44: 0}
KAFKA_4_1 = {0: 13, 1: 18, 3: 13, 22: 6, 24: 5, 26: 5, 44: 1, 45: 1}


def versions(highest: dict[int, int]) -> dict[int, tuple[int, int]]:
    return {key: (0, version) for key, version in highest.items()}


@pytest.mark.parametrize(
    ("release", "features"),
    [
        (KAFKA_0_10, set()),
        (KAFKA_2_2, {FEATURE_RECORDS_V2, FEATURE_TRANSACTIONS}),
        (KAFKA_2_3, {FEATURE_RECORDS_V2, FEATURE_TRANSACTIONS, FEATURE_INCREMENTAL}),
        (
            KAFKA_4_1,
            {
                FEATURE_RECORDS_V2,
                FEATURE_TRANSACTIONS,
                FEATURE_INCREMENTAL,
                FEATURE_REASSIGN,
                FEATURE_TOPIC_IDS,
            },
        ),
    ],
)
def test_features_of_a_release(release: dict[int, int], features: set[str]) -> None:
    assert features_of(versions(release)) == features


def test_a_cluster_can_what_all_its_brokers_can() -> None:
    brokers = [BrokerVersions("1 (a:1)", versions(KAFKA_4_1)), BrokerVersions("2 (b:2)", versions(KAFKA_2_2))]
    assert common_features(brokers) == {FEATURE_RECORDS_V2, FEATURE_TRANSACTIONS}
    assert common_features([]) == frozenset()


def test_the_broker_that_is_too_old_is_named_with_what_it_lacks() -> None:
    brokers = [
        BrokerVersions("1 (a:1)", versions(KAFKA_2_3)),
        BrokerVersions("2 (b:2)", versions(KAFKA_0_10)),
    ]
    (only,) = too_old("dc1", brokers)
    assert only.severity is Severity.ERROR
    assert only.exit is ExitCode.ERROR
    assert only.summary == (
        "broker 2 (b:2) of dc1 is too old: it lacks message format v2 (Kafka 0.11) "
        "and transactions (Kafka 0.11) and incremental config changes (Kafka 2.3)"
    )
    assert "2.3" in only.way_out
