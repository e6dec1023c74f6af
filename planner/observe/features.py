"""Pure: the features that a broker's API versions prove, and which brokers are too old."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.model.diagnostic import Diagnostic, error
from planner.model.observed import (
    FEATURE_INCREMENTAL,
    FEATURE_REASSIGN,
    FEATURE_RECORDS_V2,
    FEATURE_TOPIC_IDS,
    FEATURE_TRANSACTIONS,
)

PRODUCE, FETCH, METADATA = 0, 1, 3
INIT_PRODUCER_ID, ADD_PARTITIONS, END_TRANSACTION = 22, 24, 26
INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS = 44, 45

Versions = Mapping[int, tuple[int, int]]

# feature → the API keys that it needs, each with the first version that has it
_NEEDS: Mapping[str, Mapping[int, int]] = {
    FEATURE_RECORDS_V2: {PRODUCE: 3, FETCH: 4},
    FEATURE_TRANSACTIONS: {INIT_PRODUCER_ID: 0, ADD_PARTITIONS: 0, END_TRANSACTION: 0},
    FEATURE_INCREMENTAL: {INCREMENTAL_ALTER_CONFIGS: 0},
    FEATURE_REASSIGN: {ALTER_REASSIGNMENTS: 0},
    FEATURE_TOPIC_IDS: {METADATA: 10},
}
_SINCE = {FEATURE_RECORDS_V2: "0.11", FEATURE_TRANSACTIONS: "0.11", FEATURE_INCREMENTAL: "2.3"}


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """One broker's answer to ApiVersions."""

    broker: str  # "2 (10.0.0.2:9092)"
    versions: Versions


def features_of(versions: Versions) -> frozenset[str]:
    """Returns the features that these API versions allow."""
    return frozenset(
        feature
        for feature, needs in _NEEDS.items()
        if all(versions.get(key, (0, -1))[1] >= version for key, version in needs.items())
    )


def common_features(brokers: Iterable[BrokerVersions]) -> frozenset[str]:
    """Returns the features of all brokers: a request may go to any of them."""
    each = [features_of(one.versions) for one in brokers]
    return frozenset.intersection(*each) if each else frozenset()


def too_old(cluster: str, brokers: Iterable[BrokerVersions]) -> list[Diagnostic]:
    """Returns an error for each broker without a required feature."""
    found = []
    for one in brokers:
        able = features_of(one.versions)
        lacks = [f"{feature} (Kafka {since})" for feature, since in _SINCE.items() if feature not in able]
        if lacks:
            found.append(
                error(
                    f"broker {one.broker} of {cluster} is too old: it lacks {' and '.join(lacks)}",
                    "upgrade it to Kafka 2.3 or newer",
                    code="broker-too-old",
                )
            )
    return found
