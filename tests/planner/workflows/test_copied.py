"""While a promotion or a failback waits: how long a source may be silent, and what is left to copy."""

from planner.workflows.flows.ending import SILENT_MS, CopyGoal, SourceSilence, left_to_copy
from runtime.audit.status.facts import TopicFacts
from runtime.audit.status.join import join
from runtime.contract.records.job_status import PartitionState as S
from tests.runtime.audit.given import (
    TOPIC,
    asked,
    destination,
    job,
    ledger,
    look,
    progress,
    report,
    said,
    source,
)

LONG_S = SILENT_MS / 1000 + 1


def test_a_source_that_never_answered_is_silent_at_once() -> None:
    assert SourceSilence().lasts(answers=False, now_s=100)


def test_one_that_did_answer_has_a_moment_to_come_back() -> None:
    silence = SourceSilence()

    assert not silence.lasts(answers=True, now_s=100)
    assert not silence.lasts(answers=False, now_s=101)
    assert not silence.lasts(answers=True, now_s=102)
    assert not silence.lasts(answers=False, now_s=102 + LONG_S - 2)
    assert silence.lasts(answers=False, now_s=102 + LONG_S)


def test_a_partition_that_was_recreated_is_not_copied_and_its_next_step_is_told() -> None:
    written = ledger(progress(), job(), report(said(S.CAUGHT_UP)))
    made_again = destination(topics={TOPIC: TopicFacts(b"o" * 16, 1)})
    (flow,) = join(asked(), look(source(), made_again, written)).flows

    assert left_to_copy(flow.topics) == (
        "orders-0: recreated, orders at dc2 was deleted and made again. Next: repl resume one --accept-loss"
    )
    (flow,) = join(asked(), look(source(), destination(), written)).flows
    assert left_to_copy(flow.topics) == ""


def test_what_producers_add_while_a_failback_waits_is_not_waited_for() -> None:
    def left(goal: CopyGoal, position: int, end: int) -> str:
        written = ledger(progress(position), job(), report(said(S.COPYING)))
        (flow,) = join(asked(), look(source(end=end), destination(end=position), written)).flows
        assert (
            left_to_copy(flow.topics)
            == f"{end - position:,} records are left to copy (orders {end - position:,})"
        )
        return goal.left(flow.topics)

    goal = CopyGoal()
    assert left(goal, 40, 100) == "60 records are left to copy (orders 60)"
    assert left(goal, 90, 170) == "10 records are left to copy (orders 10)"
    assert left(goal, 100, 180) == ""
    assert left(CopyGoal(), 100, 180) == "80 records are left to copy (orders 80)"


def test_a_failback_waits_while_a_lag_is_not_known() -> None:
    goal = CopyGoal()
    (flow,) = join(asked(), look(source(), destination(), ledger(None, job()))).flows
    assert goal.left(flow.topics) == left_to_copy(flow.topics) != ""
