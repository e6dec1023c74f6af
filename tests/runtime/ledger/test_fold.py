"""Fencing 2: the ledger is read uncommitted, and control markers decide."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.batch import Batch, walk
from runtime.ledger.records import CommittedValues, InternalRecord, build, chunks, plain, read
from tests.runtime.batch.forge import HERE, batch_bytes, control_batch, empty_batch, record

ABORT, COMMIT = 0, 1
TRANSACTIONAL = 0x10


def wrote(offset: int, producer: int | None, key: str, value: str | None, epoch: int = 0) -> bytes:
    one = record(offset, value.encode() if value is not None else None, key=key.encode())
    if producer is None:
        return batch_bytes([one])
    return batch_bytes([one], producer=(producer, epoch, 0), more=TRANSACTIONAL)


def folded(*parts: bytes) -> CommittedValues:
    fold = CommittedValues()
    fold.take(walk(b"".join(parts), HERE).sets)
    return fold


@pytest.mark.parametrize(
    ("parts", "value", "undecided"),
    [
        ([wrote(0, 1, "k", "a"), control_batch(1, 1, COMMIT)], b"a", False),
        ([wrote(0, 1, "k", "a"), control_batch(1, 1, ABORT)], None, False),
        ([wrote(0, 1, "k", "a")], None, True),
        ([wrote(0, None, "k", "a")], b"a", False),
        # Another's open transaction neither hides nor delays what committed behind it.
        (
            [
                wrote(0, 2, "other", "x"),
                wrote(1, 1, "k", "a"),
                control_batch(2, 1, COMMIT),
                wrote(3, 2, "o", "y"),
            ],
            b"a",
            False,
        ),
        # One producer id, several transactions: each marker decides what came since the one before.
        (
            [
                *(wrote(0, 1, "k", "a"), control_batch(1, 1, COMMIT)),
                *(wrote(2, 1, "k", "b"), control_batch(3, 1, ABORT)),
                wrote(4, 1, "k", "c"),
            ],
            b"a",
            True,
        ),
        # The highest offset wins, whichever marker comes last: compaction would keep that one, too.
        (
            [
                *(wrote(0, 1, "k", "old"), wrote(1, 2, "k", "new")),
                *(control_batch(2, 2, COMMIT), control_batch(3, 1, COMMIT)),
            ],
            b"new",
            False,
        ),
        # A tombstone takes the value away.
        ([wrote(0, None, "k", "a"), wrote(1, None, "k", None)], None, False),
        # What compaction left of a superseded transaction: a batch without records, a marker without data.
        ([empty_batch(0, 3), control_batch(4, 9, COMMIT), wrote(5, None, "k", "a")], b"a", False),
    ],
)
def test_a_value_counts_once_its_marker_says_so(
    parts: Sequence[bytes], value: bytes | None, undecided: bool
) -> None:
    fold = folded(*parts)
    assert fold.get(b"k") == value
    assert fold.undecided(b"k") is undecided


def test_reading_on_decides_what_was_open() -> None:
    fold = folded(wrote(0, 1, "k", "a"))
    assert fold.position == 1
    assert fold.undecided(b"k")
    fold.take(walk(control_batch(1, 1, COMMIT), HERE).sets)
    assert (fold.get(b"k"), fold.position, fold.undecided(b"k")) == (b"a", 2, False)


@pytest.mark.parametrize(
    "later",
    [
        [wrote(9, 1, "other", "x", epoch=1), control_batch(10, 1, COMMIT, epoch=1)],
        [control_batch(10, 1, COMMIT, epoch=1)],  # its records were superseded, too
    ],
)
def test_a_marker_that_was_compacted_away_is_not_taken_for_a_later_one(later: Sequence[bytes]) -> None:
    fold = folded(wrote(0, None, "k", "kept"), wrote(1, 1, "k", "aborted"))
    fold.take(walk(b"".join(later), HERE).sets)
    assert fold.get(b"k") == b"kept"
    assert not fold.undecided(b"k")


def test_what_was_superseded_leaves_nothing_undecided() -> None:
    """Its marker may be gone for good."""
    fold = folded(wrote(0, 1, "k", "a"), wrote(5, None, "k", "b"))
    assert (fold.get(b"k"), fold.undecided(b"k")) == (b"b", False)


def test_news_are_returned_once() -> None:
    fold = folded(wrote(0, None, "k", "a"), wrote(1, None, "gone", "b"), wrote(2, 1, "open", "c"))
    fold.take(walk(wrote(3, None, "gone", None), HERE).sets)
    assert sorted(fold.news()) == [(b"gone", None), (b"k", b"a")]
    fold.take(walk(control_batch(4, 1, COMMIT), HERE).sets)
    assert fold.news() == [(b"open", b"c")]


def test_values_can_leave_the_memory_with_the_news() -> None:
    fold = CommittedValues(keep_values=False)
    fold.take(walk(wrote(0, None, "k", "a") + wrote(1, None, "gone", "x"), HERE).sets)
    assert sorted(fold.news()) == [(b"gone", b"x"), (b"k", b"a")]
    fold.take(walk(wrote(2, 1, "k", "b") + wrote(3, None, "gone", None), HERE).sets)
    assert fold.news() == [(b"gone", None)]
    assert fold.undecided(b"k")
    fold.take(walk(control_batch(4, 1, COMMIT), HERE).sets)
    assert fold.news() == [(b"k", b"b")]
    assert dict(fold.items()) == {b"k": b""}


def test_what_was_read_already_is_not_read_again() -> None:
    fold = folded(wrote(5, None, "k", "new"))
    fold.take(walk(wrote(0, None, "k", "old"), HERE).sets)
    assert fold.get(b"k") == b"new"
    assert dict(fold.items()) == {b"k": b"new"}


def test_small_records_come_back_as_they_were_built() -> None:
    records = [InternalRecord(b"a", b"1"), InternalRecord(b"b", None), InternalRecord(b"c", b"")]
    header, body = plain(build(records, 5))
    (batch,) = walk(header + bytes(body), HERE).sets
    assert isinstance(batch, Batch)
    assert [(one.offset, one.key, one.value) for one in read(batch)] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"c", b""),
    ]


def test_many_records_become_batches_of_bounded_size() -> None:
    records = [InternalRecord(b"%03d" % one, b"x" * 100) for one in range(100)]
    groups = chunks(records, 1_000)
    assert [one for group in groups for one in group] == records
    assert max(map(len, groups)) == 7


def test_a_log_start_that_moved_leaves_what_a_new_reader_would_find() -> None:
    """The marker of the open transaction may be among the deleted records: nothing waits for it."""
    fold = folded(
        wrote(0, None, "decided", "a"),
        wrote(1, None, "rewritten", "old"),
        wrote(2, 1, "rewritten", "new"),
        wrote(3, 2, "overtaken", "old"),
        wrote(4, None, "overtaken", "new"),
    )
    fold.news()

    fold.skip_to(10)

    assert fold.position == 10
    assert [fold.get(key) for key in (b"decided", b"rewritten", b"overtaken")] == [b"a", None, b"new"]
    assert not fold.undecided(b"rewritten")
    assert fold.news() == [(b"rewritten", None)]
    fold.take(
        walk(wrote(10, 1, "rewritten", "c", epoch=1) + control_batch(11, 1, COMMIT, epoch=1), HERE).sets
    )
    assert fold.get(b"rewritten") == b"c"


class LogOfTransactions:
    """A log that several producers write, and the newest committed value of each key by its definition."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._records: list[tuple[int, str, str | None, int | None]] = []
        self._open: dict[int, list[int]] = {}
        self._dropped: set[int] = set()

    def add(self, event: tuple[str, int, str]) -> None:
        kind, producer, key = event
        offset = len(self.parts)
        match kind:
            case "value" | "deleted":
                value = f"at {offset}" if kind == "value" else None
                self.parts.append(wrote(offset, producer or None, key, value))
                self._records.append((offset, key, value, producer or None))
                if producer:
                    self._open.setdefault(producer, []).append(offset)
            case "commit" | "abort" if producer:
                self.parts.append(control_batch(offset, producer, COMMIT if kind == "commit" else ABORT))
                ended = self._open.pop(producer, [])
                self._dropped |= set(ended) if kind == "abort" else set()

    def open_keys(self) -> set[str]:
        """The keys that open transactions have written."""
        waiting = {offset for some in self._open.values() for offset in some}
        return {key for offset, key, _, _ in self._records if offset in waiting}

    def newest(self, key: str) -> tuple[int, str | None]:
        """The offset and the value of the newest committed record of a key."""
        waiting = {offset for some in self._open.values() for offset in some}
        found = [
            (offset, value)
            for offset, name, value, _ in self._records
            if name == key and offset not in waiting and offset not in self._dropped
        ]
        return max(found, default=(-1, None))

    def undecided(self, key: str) -> bool:
        """Whether an open transaction has written the key behind its newest committed record."""
        waiting = {offset for some in self._open.values() for offset in some}
        last = self.newest(key)[0]
        return any(offset > last for offset, name, _, _ in self._records if name == key and offset in waiting)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("value", "value", "deleted", "deleted", "commit", "abort")),
            st.integers(0, 3),
            st.sampled_from("abc"),
        ),
        max_size=40,
    )
)
def test_a_fold_answers_as_the_log_is_defined_and_keeps_no_tombstone_without_need(
    events: list[tuple[str, int, str]],
) -> None:
    log, fold = LogOfTransactions(), CommittedValues()
    told: dict[bytes, bytes | None] = {}
    for event in events:
        read_before = len(log.parts)
        log.add(event)
        fold.take(walk(b"".join(log.parts[read_before:]), HERE).sets)
        told.update(fold.news())
        for key in "abc":
            value = log.newest(key)[1]
            expected = value.encode() if value is not None else None
            assert fold.get(key.encode()) == expected
            assert told.get(key.encode()) == expected
            assert fold.undecided(key.encode()) == log.undecided(key)
            if value is None and key not in log.open_keys():
                assert fold.offset(key.encode()) == -1  # nothing is kept of it
