"""The last hour: what stays, what is forgotten, and how it is drawn."""

from msgspec.structs import replace

from planner.ui.feed import BUCKET_MS, BUCKETS, Chart, Hour, Series, read_after
from tests.fakes.tables import cases
from tests.planner.render import test_status as scenes
from tests.runtime.audit.given import FLOW, NOW, TOPIC

HOUR_MS = BUCKETS * BUCKET_MS


@cases(
    "values until_ms shown",
    {
        "a bucket keeps its highest value": ({0: 3, 1: 9, 2: 5, BUCKET_MS: 1}, BUCKET_MS, [None, 9, 1]),
        "a gap": ({0: 4, BUCKET_MS: None, 3 * BUCKET_MS: 8}, 4 * BUCKET_MS, [4, None, None, 8, None]),
        "after a long silence": ({0: 7, 5 * HOUR_MS: 1}, 5 * HOUR_MS, [None] * (BUCKETS - 1) + [1]),
        "a clock that was set back is ignored": ({0: 7, -HOUR_MS: 9}, 0, [None] * (BUCKETS - 1) + [7]),
        "an hour is kept and no more": (
            {number * BUCKET_MS: number for number in range(3 * BUCKETS)},
            (3 * BUCKETS - 1) * BUCKET_MS,
            [float(number) for number in range(2 * BUCKETS, 3 * BUCKETS)],
        ),
    },
)
def test_a_series_keeps_an_hour(values, until_ms, shown) -> None:
    series = Series()
    for at, value in values.items():
        series.put(NOW + at, value)
    assert series.until(NOW + until_ms)[-len(shown) :] == shown


def test_a_gap_is_no_line() -> None:
    assert len(Chart([4, None, None, 8, None]).lines) == 2


def test_topics_that_are_gone_for_an_hour_are_forgotten() -> None:
    hour, seen = Hour(), scenes.copying()
    hour.take(seen)
    assert hour.topic(FLOW, TOPIC) is not None

    flow = replace(seen.flows[0], topics=[])
    hour.take(replace(seen, at_ms=seen.at_ms + 2 * HOUR_MS, flows=[flow]))
    assert hour.topic(FLOW, TOPIC) is None
    assert hour.flow(FLOW) is not None


def test_what_was_known_is_forgotten_with_its_flow() -> None:
    first = read_after(None, scenes.copying())
    away = read_after(first, scenes.destination_down())
    assert away.known_flows[FLOW].status.lag_records == 400

    gone = read_after(away, replace(scenes.copying(), flows=[], jobs=[]))
    assert (gone.known_flows, gone.known_jobs) == ({}, {})
