"""What `repl doctor` found out about a live cluster. Pure data."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.model.observed import BrokerFeature


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """One broker. `why` says why it does not answer; `release` is told from its API versions."""

    node: int
    address: str
    release: str = ""
    round_trip_ms: float | None = None
    versions: Mapping[int, tuple[int, int]] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class FeatureReport:
    """A feature, and why the cluster lacks it; empty where every broker that answers has it."""

    feature: BrokerFeature
    broker: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class RightReport:
    """A right of the principal on the cluster; `allowed` is None where the broker does not tell."""

    operation: str
    allowed: bool | None
    used_to: str


@dataclass(frozen=True, slots=True)
class TopicRightsReport:
    """The rights of the principal on a topic that flows use.

    `missing` maps each operation that is not allowed to what it is needed for; it is None where the broker
    does not tell, and `why` says so.
    """

    topic: str
    uses: tuple[str, ...]
    missing: Mapping[str, str] | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster as `repl doctor` shows it. The clock's offset is the cluster's time minus this machine's."""

    name: str
    cluster_id: str
    brokers: tuple[BrokerReport, ...]
    features: tuple[FeatureReport, ...]
    rights: tuple[RightReport, ...]
    clock_offset_ms: float | None
    clock_why: str
    topic_rights: tuple[TopicRightsReport, ...] = ()

    @property
    def can_be_source(self) -> bool:
        """Whether a flow can copy from the cluster."""
        return not any(one.why and one.feature.required and one.feature.as_source for one in self.features)

    @property
    def can_be_destination(self) -> bool:
        """Whether a flow can copy to the cluster."""
        return not any(
            one.why and one.feature.required and one.feature.as_destination for one in self.features
        )
