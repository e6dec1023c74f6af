"""While a promotion waits: how long a source may be silent."""

from planner.workflows.flows.ending import SILENT_MS, SourceSilence, left_to_copy
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
