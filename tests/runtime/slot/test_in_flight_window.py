"""What may be in flight follows how quickly it is answered."""

import itertools

from runtime.slot.write.sender import REQUESTS, InFlightWindow

MB = 1 << 20


def rounds(flight: InFlightWindow, count: int, took_s: float, request: int, began: float = 0.0) -> float:
    """So many times all that may go out goes out, and is answered as late as that; when it is over."""
    now = began
    for _ in range(count):
        sent = 0
        while flight.room > 0:
            flight.sent(request)
            sent += 1
        for _ in range(sent):
            flight.answered(request, now, now + took_s)
        now += took_s
    return now


def test_it_begins_small_and_doubles_while_responses_are_quick() -> None:
    flight = InFlightWindow(32 * MB)
    limits = [flight.limit]
    for _ in range(12):
        rounds(flight, 1, 0.05, 8 * MB)
        limits.append(flight.limit)
    assert limits[0] < MB
    assert all(after >= min(1.9 * before, 32 * MB) for before, after in itertools.pairwise(limits))
    assert limits[-1] == 32 * MB


def test_an_unused_window_does_not_grow() -> None:
    """A quiet flow learns nothing about what the destination can take."""
    flight = InFlightWindow(32 * MB)
    first = flight.limit
    for _ in range(1_000):
        flight.sent(1_000)
        flight.answered(1_000, 0.0, 0.01)
    assert flight.limit == first


def test_a_late_response_shrinks_the_window() -> None:
    flight = InFlightWindow(32 * MB)
    now = rounds(flight, 20, 0.05, 8 * MB)
    for _ in range(REQUESTS):
        flight.sent(8 * MB)
    for number in range(1, REQUESTS + 1):  # 2 MB/s
        flight.answered(8 * MB, now, now + 4 * number)
    assert 2 * MB <= flight.limit <= 16 * MB


def test_a_throttle_counts_as_the_time_that_it_takes() -> None:
    slow, held = InFlightWindow(32 * MB), InFlightWindow(32 * MB)
    for flight, took_s, throttle_s in ((slow, 20.0, 0.0), (held, 0.01, 20.0)):
        flight.sent(MB)
        flight.answered(MB, 0.0, took_s, throttle_s)
    assert abs(slow.limit - held.limit) < 1_000
    assert slow.limit < MB // 4


def test_a_request_may_be_sent_after_any_slow_response() -> None:
    flight = InFlightWindow(32 * MB)
    for number in range(50):
        flight.sent(8 * MB)
        assert flight.room <= 0
        flight.answered(8 * MB, 100.0 * number, 100.0 * (number + 1))
        assert flight.room > 0


def test_the_number_of_requests_in_flight_is_bounded() -> None:
    flight = InFlightWindow(32 * MB)
    for _ in range(REQUESTS):
        assert flight.room > 0
        flight.sent(1)
    assert flight.room == 0


def test_it_grows_slowly_with_steady_responses_that_are_not_quick() -> None:
    flight, first = InFlightWindow(32 * MB), InFlightWindow(32 * MB).limit
    rounds(flight, 10, 1.0, MB // 4)
    assert 2 * first < flight.limit < 32 * MB


def test_a_broken_connection_is_no_measurement() -> None:
    flight, first = InFlightWindow(32 * MB), InFlightWindow(32 * MB).limit
    for _ in range(100):
        flight.sent(MB)
        flight.given_up(MB, 0.0, 0.01)
    assert flight.limit == first
    assert flight.room == first
