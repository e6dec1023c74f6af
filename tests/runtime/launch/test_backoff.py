from runtime.launch.supervision.supervisor import LONGEST_S, STEADY_S, Backoff


def test_the_first_crash_is_answered_at_once_and_the_next_ones_later_and_later():
    backoff, delays = Backoff(), []
    for _ in range(8):
        backoff = backoff.failed(lived_s=1.0)
        delays.append(round(backoff.delay_s, 1))
    assert delays == [0.2, 0.6, 1.8, 5.4, 16.2, 48.6, LONGEST_S, LONGEST_S]


def test_a_steady_life_forgives():
    assert Backoff(7).failed(STEADY_S).delay_s == Backoff(0).failed(0).delay_s
    assert Backoff().delay_s == 0
