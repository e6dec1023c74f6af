"""This module declares a metric family: name, kind, labels and help text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Sample = tuple[Labels, float]
Merge = Callable[[list[float]], float]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A MetricFamily makes the metric of one name from samples.

    The name of a counter includes `_total`. The name of a histogram is the part before `_bucket`, `_sum` and
    `_count`.
    """

    name: str
    kind: Kind
    labels: Labels
    help: str

    def of(self, samples: Iterable[Sample]) -> Metric:
        """Returns a counter or a gauge. A series does not have a label whose value is empty."""
        family = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        metric = family(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            metric.add_metric(labels, value)
        return metric

    def of_counts(
        self, bounds: Sequence[float], counted: Iterable[tuple[Labels, Sequence[float], float]]
    ) -> Metric:
        """Returns a histogram from counts by bound, one more count for the rest, and the sum of each
        series.
        """
        metric = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, counts, total in counted:
            metric.add_metric(labels, _cumulative(bounds, counts), total)
        return metric


def merged(samples: Iterable[Sample], merge: Merge) -> Iterator[Sample]:
    """Yields one sample for all samples with equal labels."""
    by_labels: dict[Labels, list[float]] = {}
    for labels, value in samples:
        by_labels.setdefault(labels, []).append(value)
    for labels, some in by_labels.items():
        yield labels, merge(some)


def _cumulative(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Returns cumulative buckets from counts by bound."""
    so_far = 0.0
    buckets = []
    for bound, count in zip([*map(repr, bounds), "+Inf"], counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return buckets
