"""The last hour: what stays, what is forgotten, and how it is drawn."""

from msgspec.structs import replace

from planner.ui.feed import BUCKET_MS, BUCKETS, Chart, Hour, Series, read_after
from tests.planner.render import test_status as scenes
from tests.runtime.audit.given import FLOW, NOW, TOPIC

HOUR_MS = BUCKETS * BUCKET_MS


def test_a_bucket_keeps_its_highest_value() -> None:
    series = Series()
    for at, value in ((0, 3), (1, 9), (2, 5), (BUCKET_MS, 1)):
        series.put(NOW + at, value)

    assert series.until(NOW + BUCKET_MS)[-3:] == [None, 9, 1]


def test_a_gap_is_unknown_and_not_a_line() -> None:
    series = Series()
    series.put(NOW, 4)
    series.put(NOW + BUCKET_MS, None)
    series.put(NOW + 3 * BUCKET_MS, 8)

    assert series.until(NOW + 4 * BUCKET_MS)[-5:] == [4, None, None, 8, None]
    assert len(Chart(series.until(NOW + 4 * BUCKET_MS)).lines) == 2


def test_an_hour_is_kept_and_no_more() -> None:
    series = Series()
    for number in range(3 * BUCKETS):
        series.put(NOW + number * BUCKET_MS, number)

    shown = series.until(NOW + (3 * BUCKETS - 1) * BUCKET_MS)
    assert shown == [float(number) for number in range(2 * BUCKETS, 3 * BUCKETS)]


def test_after_a_long_silence_nothing_old_comes_back() -> None:
    series = Series()
    series.put(NOW, 7)
    series.put(NOW + 5 * HOUR_MS, 1)

    assert [one for one in series.until(NOW + 5 * HOUR_MS) if one is not None] == [1]


def test_a_clock_that_was_set_back_is_ignored() -> None:
    series = Series()
    series.put(NOW, 7)
    series.put(NOW - HOUR_MS, 9)

    assert [one for one in series.until(NOW) if one is not None] == [7]


def test_topics_that_are_gone_for_an_hour_are_forgotten() -> None:
    hour, seen = Hour(), scenes.copying()
    hour.take(seen)
    assert hour.topic(FLOW, TOPIC) is not None

    flow = replace(seen.flows[0], topics=[])
    hour.take(replace(seen, at_ms=seen.at_ms + 2 * HOUR_MS, flows=[flow]))
    assert hour.topic(FLOW, TOPIC) is None
    assert hour.flow(FLOW) is not None


def test_a_chart_without_values_claims_nothing() -> None:
    drawn = Chart([None] * BUCKETS)

    assert (drawn.lines, drawn.highest, drawn.latest) == ([], None, None)


def test_what_was_known_is_forgotten_with_its_flow() -> None:
    first = read_after(None, scenes.copying())
    away = read_after(first, scenes.destination_down())
    assert away.known_flows[FLOW].flow.lag_records == 400

    gone = read_after(away, replace(scenes.copying(), flows=[], jobs=[]))
    assert (gone.known_flows, gone.known_jobs, gone.number) == ({}, {}, 3)
