"""While a promotion waits: how long a source may be silent."""

from planner.cli.promote_wait import SILENT_MS, Silence

LONG_S = SILENT_MS / 1000 + 1


def test_a_source_that_never_answered_is_silent_at_once() -> None:
    assert Silence().lasts(answers=False, now_s=100)


def test_one_that_did_answer_has_a_moment_to_come_back() -> None:
    silence = Silence()

    assert not silence.lasts(answers=True, now_s=100)
    assert not silence.lasts(answers=False, now_s=101)
    assert not silence.lasts(answers=True, now_s=102)
    assert not silence.lasts(answers=False, now_s=102 + LONG_S - 2)
    assert silence.lasts(answers=False, now_s=102 + LONG_S)
