"""Fencing 2: the ledger is read uncommitted, and control markers decide."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.batch import Batch, walk
from runtime.kafka.committed_values import CommittedValues
from runtime.kafka.records import InternalRecord, build, chunks, plain, read
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
    fold.take(walk(b"".join(parts), HERE).sets, HERE)
    return fold


@pytest.mark.parametrize(
    ("parts", "value", "undecided"),
    [
        ([wrote(0, 1, "k", "a"), control_batch(1, 1, COMMIT)], b"a", False),
        ([wrote(0, 1, "k", "a"), control_batch(1, 1, ABORT)], None, False),
        ([wrote(0, 1, "k", "a")], None, True),
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


def test_values_can_leave_the_memory_with_the_news() -> None:
    fold = CommittedValues(keep_values=False)
    fold.take(walk(wrote(0, None, "k", "a") + wrote(1, None, "gone", "x"), HERE).sets, HERE)
    assert sorted(fold.news()) == [(b"gone", b"x"), (b"k", b"a")]
    fold.take(walk(wrote(2, 1, "k", "b") + wrote(3, None, "gone", None), HERE).sets, HERE)
    assert fold.news() == [(b"gone", None)]
    assert fold.undecided(b"k")
    fold.take(walk(control_batch(4, 1, COMMIT), HERE).sets, HERE)
    assert fold.news() == [(b"k", b"b")]
    assert dict(fold.items()) == {b"k": b""}


def test_records_that_were_read_already_are_not_read_again_and_each_value_has_its_offset() -> None:
    fold = folded(wrote(5, None, "k", "new"), wrote(6, None, "gone", "b"), wrote(7, None, "gone", None))
    fold.take(walk(wrote(0, None, "k", "old"), HERE).sets, HERE)
    assert dict(fold.items()) == {b"k": b"new"}
    assert [fold.offset(key) for key in (b"k", b"gone", b"never")] == [5, -1, -1]


def test_small_records_come_back_as_they_were_built() -> None:
    records = [InternalRecord(b"a", b"1"), InternalRecord(b"b", None), InternalRecord(b"c", b"")]
    header, body = plain(build(records, 5))
    (batch,) = walk(header + bytes(body), HERE).sets
    assert isinstance(batch, Batch)
    assert [(one.offset, one.key, one.value) for one in read(batch, HERE)] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"c", b""),
    ]


def test_many_records_become_batches_of_bounded_size() -> None:
    records = [InternalRecord(b"%03d" % one, b"x" * 100) for one in range(100)]
    groups = chunks(records, 1_000)
    assert [one for group in groups for one in group] == records
    assert max(map(len, groups)) == 7


KEYS, PRODUCERS = "ab", (1, 2)


class Step(NamedTuple):
    """A step of a log. A `fence` is the first record under the next epoch: the marker before it is gone."""

    kind: Literal["write", "commit", "abort", "stale marker", "fence", "skip"]
    producer: int | None
    key: str
    value: str | None


class Wrote(NamedTuple):
    """A record of a transaction, or of none."""

    offset: int
    key: str
    value: str | None
    transaction: int | None


@dataclass(slots=True)
class Log:
    """Holds every record, and how each transaction ended: what the fold's answers follow from."""

    records: list[Wrote] = field(default_factory=list)
    committed: set[int | None] = field(default_factory=lambda: {None})
    open: dict[int, int] = field(default_factory=dict)  # the transaction of each producer id
    epochs: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))
    end: int = 0

    def append(self, step: Step) -> bytes:
        """Returns the bytes of the step's batch, or none where the log start moves to the log end."""
        offset, producer, (kind, _, key, value) = self.end, step.producer, step
        self.end += 1
        if kind == "skip":
            self._skip()
            return b""
        if producer is None:
            self.records.append(Wrote(offset, key, value, None))
            return wrote(offset, None, key, value)
        epoch = self.epochs[producer]
        if kind == "fence":
            self.open.pop(producer, None)
            epoch = self.epochs[producer] = epoch + 1
        if kind in ("write", "fence"):
            self.records.append(Wrote(offset, key, value, self.open.setdefault(producer, offset)))
            return wrote(offset, producer, key, value, epoch)
        ended = self.open.pop(producer, None)
        if kind == "commit" and ended is not None:
            self.committed.add(ended)
        marks = epoch + 1 if kind == "stale marker" else epoch
        return control_batch(offset, producer, ABORT if kind == "abort" else COMMIT, marks)

    def _skip(self) -> None:
        """Removes the records of open transactions, and older ones of their keys."""
        newest = {one.key: one.offset for one in self.records if one.transaction in self.open.values()}
        self.records = [one for one in self.records if one.offset > newest.get(one.key, -1)]
        self.open.clear()

    def newest(self, key: str) -> Wrote:
        """The newest committed record of a key."""
        found = [one for one in self.records if one.key == key and one.transaction in self.committed]
        return found[-1] if found else Wrote(-1, key, None, None)

    def undecided(self, key: str) -> bool:
        since = self.newest(key).offset
        return any(
            one.key == key and one.offset > since and one.transaction in self.open.values()
            for one in self.records
        )


VALUES = st.sampled_from(["x", None])
WRITES = st.builds(Step, st.just("write"), st.sampled_from([None, *PRODUCERS]), st.sampled_from(KEYS), VALUES)
ENDS = st.builds(
    Step,
    st.sampled_from(["commit", "abort", "stale marker", "fence"]),
    st.sampled_from(PRODUCERS),
    st.sampled_from(KEYS),
    VALUES,
)
SKIP = st.just(Step("skip", None, "", None))
STEPS = st.sampled_from([WRITES, WRITES, WRITES, WRITES, ENDS, ENDS, SKIP]).flatmap(lambda steps: steps)


def step(kind: str, producer: int | None = None, value: str | None = "x") -> Step:
    return Step(kind, producer, "a", value)  # type: ignore[arg-type]


# The tombstone is held while an older record may be committed.
DELETED = [step("write", 1), step("write", value=None)]


@given(st.lists(STEPS, min_size=2, max_size=20))
@example([*DELETED, step("commit", 1)])
@example([*DELETED, step("abort", 1)])
@example([*DELETED, Step("fence", 1, "b", "x")])
# The marker of the open transaction may be among the records before the new log start: nothing waits for it.
@example([step("write"), step("write", 1), step("skip"), step("fence", 1), step("commit", 1)])
@example([step("write", 1), step("write"), step("skip"), step("write", value=None)])
def test_the_answers_are_those_of_a_log_that_forgets_nothing(steps: list[Step]) -> None:
    fold, log = CommittedValues(), Log()
    seen: dict[bytes, bytes | None] = {}
    for step in steps:
        data = log.append(step)
        if step.kind == "skip":
            fold.skip_to(log.end)
        fold.take(walk(data, HERE).sets, HERE)
        assert fold.position == log.end

        newest = {key.encode(): log.newest(key) for key in KEYS}
        values = {key: one.value.encode() for key, one in newest.items() if one.value is not None}
        assert {key: fold.get(key) for key in newest} == {key: values.get(key) for key in newest}
        assert {key: fold.offset(key) for key in newest} == {
            key: one.offset if key in values else -1 for key, one in newest.items()
        }
        assert {key: fold.undecided(key) for key in newest} == {
            key.encode(): log.undecided(key) for key in KEYS
        }
        assert dict(fold.items()) == values
        seen.update(fold.news())
        assert {key: value for key, value in seen.items() if value is not None} == values
        assert fold.news() == []
        waiting = {one.key.encode() for one in log.records if one.transaction in log.open.values()}
        assert set(fold._kept) <= values.keys() | waiting
