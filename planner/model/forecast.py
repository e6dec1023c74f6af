"""Forecasts of flows: what the first copy takes, what an outage of the link means, and the traffic. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.model.topology import Flow

ASSUMED_RATE = 50_000_000  # bytes a second that a flow copies, where nothing else is known
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class TopicVolume:
    """What a flow has before it in one source topic.

    `records` are in the log, `behind` of them are not copied yet; bytes are None where the principal may not
    read sizes. The rate is that of the last hour. `retention_ms` and `retention_bytes` (of a partition) are
    None where nothing is deleted for its age or its size.
    """

    topic: str
    partitions: int
    records: int
    behind: int
    bytes: int | None
    records_per_s: float
    retention_ms: int | None
    retention_bytes: int | None

    @property
    def bytes_a_record(self) -> float | None:
        if self.bytes is None:
            return None
        return self.bytes / self.records if self.records else 0.0

    @property
    def bytes_per_s(self) -> float | None:
        weight = self.bytes_a_record
        return None if weight is None else self.records_per_s * weight

    @property
    def bytes_behind(self) -> float | None:
        weight = self.bytes_a_record
        return None if weight is None else self.behind * weight

    @property
    def loss_ms(self) -> float | None:
        """Returns after which time retention deletes what was written since the link went down.

        None: never. It is the earliest time; a broker deletes whole segments.
        """
        limits: list[float] = []
        if self.retention_ms is not None and self.records_per_s:
            limits.append(self.retention_ms)
        if self.retention_bytes is not None and self.bytes_per_s:
            limits.append(self.retention_bytes * self.partitions / self.bytes_per_s * 1000)
        return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class FlowForecast:
    """The forecast of one flow. Where `why` is not empty, the source could not be read and nothing is known.

    None is unknown for bytes and rates, "never" for `copy_ms` and `after_outage_ms` (the source is written
    faster than the flow copies), and "nothing is deleted" for `loss_ms`.
    """

    flow: str
    source: str
    destination: str
    rate: int
    outage_ms: int
    why: str = ""
    topics: int = 0
    partitions: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float | None = None
    copy_records: int = 0
    copy_bytes: int | None = None
    copy_ms: int | None = None
    outage_records: int = 0
    outage_bytes: int | None = None
    after_outage_ms: int | None = None
    loss_ms: int | None = None
    loss_topic: str | None = None
    lost_records: int = 0
    bytes_a_day: int | None = None

    @property
    def keeps_up(self) -> bool | None:
        """Returns whether the flow copies faster than its source is written; None if that is unknown."""
        return None if self.bytes_per_s is None else self.bytes_per_s < self.rate


Simulation = tuple[FlowForecast, ...]  # of running flows, by name; what was assumed stands in each


def forecast(flow: Flow, topics: Iterable[TopicVolume], rate: int, outage_ms: int) -> FlowForecast:
    """Computes the forecast of a flow from the volumes of its topics."""
    volumes = list(topics)
    rate = copy_rate(flow, rate)
    records_per_s = sum(volume.records_per_s for volume in volumes)
    bytes_per_s = _sum(volume.bytes_per_s for volume in volumes)
    behind = _sum(volume.bytes_behind for volume in volumes)
    outage_s = outage_ms / 1000
    outage_bytes = None if bytes_per_s is None else bytes_per_s * outage_s
    losses = {volume.topic: volume.loss_ms for volume in volumes if volume.loss_ms is not None}
    first = min(losses, key=lambda topic: (losses[topic], topic), default=None)
    lost = sum(
        volume.records_per_s * max(0.0, outage_ms - losses[volume.topic]) / 1000
        for volume in volumes
        if volume.topic in losses
    )
    return FlowForecast(
        flow.name,
        flow.source_cluster,
        flow.destination_cluster,
        rate,
        outage_ms,
        topics=len(volumes),
        partitions=sum(volume.partitions for volume in volumes),
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        copy_records=sum(volume.behind for volume in volumes),
        copy_bytes=_whole(behind),
        copy_ms=_catch_up_ms(behind, bytes_per_s, rate),
        outage_records=round(records_per_s * outage_s),
        outage_bytes=_whole(outage_bytes),
        after_outage_ms=_catch_up_ms(outage_bytes, bytes_per_s, rate),
        loss_ms=None if first is None else _whole(losses[first]),
        loss_topic=first,
        lost_records=round(lost),
        bytes_a_day=None if bytes_per_s is None else round(bytes_per_s * _DAY_S),
    )


def copy_rate(flow: Flow, rate: int) -> int:
    """Returns how many bytes a second a flow copies where the network takes `rate`."""
    return rate if flow.rate_limit is None else min(rate, flow.rate_limit)


def _sum(values: Iterable[float | None]) -> float | None:
    """Returns the sum, or None if one of the values is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _catch_up_ms(waiting: float | None, written_per_s: float | None, rate: int) -> int | None:
    """Returns how long a flow copies until it has caught up with a source that goes on."""
    if waiting is None or written_per_s is None or (waiting and written_per_s >= rate):
        return None
    return round(waiting / (rate - written_per_s) * 1000) if waiting else 0
