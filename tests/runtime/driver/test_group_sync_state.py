"""What group sync remembers, counts and looks at again."""

from runtime.contract.groups import GroupPartition, PendingTranslation, TranslatedOffset
from runtime.contract.records.group_records import CheckpointState as State
from runtime.driver.duties.group_offset_writer import GroupSyncState

ITEM = GroupPartition("g", "orders", 0)
OTHER = GroupPartition("h", "orders", 1)


def test_what_was_done_is_looked_at_again_only_after_another_commit() -> None:
    book = GroupSyncState("f")
    entry = book.entry(ITEM, 5, 0.0)
    assert not entry.settled
    entry.position, entry.state = TranslatedOffset(7), State.TRANSLATED
    assert book.entry(ITEM, 5, 1.0).settled
    assert not book.entry(ITEM, 6, 2.0).settled
    assert book.entry(ITEM, 6, 3.0).seen_at == 2.0


def test_a_position_in_a_merge_is_never_settled_and_what_waits_is_not_either() -> None:
    book = GroupSyncState("f")
    entry = book.entry(ITEM, 5, 0.0)
    entry.position, entry.state = TranslatedOffset(7, settled=False), State.TRANSLATED
    assert not entry.settled
    for state in (State.PENDING, State.REFUSED):
        entry.position, entry.state = TranslatedOffset(7), state
        assert not entry.settled


def test_a_look_at_everything_forgets_what_was_done() -> None:
    book = GroupSyncState("f")
    entry = book.entry(ITEM, 5, 0.0)
    entry.position, entry.state = TranslatedOffset(7), State.TRANSLATED
    book.recheck_all()
    assert not entry.settled
    assert entry.position is None


def test_numbers_are_of_now_and_counters_go_on() -> None:
    book = GroupSyncState("f")
    written = book.entry(ITEM, 5, 10.0)
    written.position, written.state = TranslatedOffset(7, clamped=True), State.TRANSLATED
    book.wrote(ITEM, written, clamped=True, now_s=11.5)
    waits = book.entry(OTHER, 9, 10.0)
    waits.position, waits.state = PendingTranslation("…"), State.PENDING
    book.record_pass(100.0, 0.25, [ITEM])
    book.record_pass(105.0, 0.25, [])
    numbers = book.counts()
    assert (numbers.groups, numbers.offsets, numbers.written) == (2, 2, 1)
    assert (numbers.translated, numbers.clamped, numbers.pending) == (1, 1, 1)
    assert (numbers.checkpoint_latency_s, numbers.pass_s) == (1.5, 0.25)
    first, second = book.snapshots()
    assert (first.group, first.translated, first.clamped, first.latency_s) == ("g", 1, 1, 1.5)
    assert (second.group, second.pending, second.pending_since) == ("h", 1, 100.0)

    waits.state = State.REFUSED
    book.record_pass(110.0, 0.25, [])
    book.record_pass(115.0, 0.25, [])
    _, second = book.snapshots()
    assert (second.refused, second.pending, second.pending_since) == (2, 0, None)


def test_what_is_gone_from_the_source_is_not_counted() -> None:
    book = GroupSyncState("f")
    for item in (ITEM, OTHER):
        book.entry(item, 5, 0.0).state = State.AHEAD
    book.record_pass(0.0, 0.0, [])
    book.retain_only([OTHER])
    book.record_pass(0.0, 0.0, [])
    assert [one.group for one in book.snapshots()] == ["h"]
    assert book.counts().ahead == 1
