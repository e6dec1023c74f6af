"""Offsets at the destination = own records + markers of own transactions + foreign records."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from hypothesis import example, given
from hypothesis import strategies as st

from runtime.slot.offset_accounts import OffsetAccounts, OffsetRange

Entry = Literal["own", "marker", "foreign"]
Event = Literal["join", "send", "lose", "commit", "abort", "lane", "restart", "foreign", "marker", "idle"]
EVENTS: tuple[Event, ...] = get_args(Event)


@dataclass
class Partition:
    """A log, the flow that writes it as lanes do, and what reading the unexplained ranges showed."""

    log: list[Entry] = field(default_factory=list)
    accounts: OffsetAccounts = field(default_factory=lambda: OffsetAccounts(0))
    committed_end: int = 0
    joined: bool = False
    sent_end: int | None = None
    late: int = 0  # markers that are decided and not written yet
    flagged: bool = False
    seen_to: int = 0  # the log up to here lies before an own batch, or was compared while idle

    def step(self, event: Event) -> None:  # noqa: C901, PLR0912 - one branch for each event
        match event:
            case "join" if not self.joined:
                self.flush()
                self.joined = True
            case "send":
                if not self.joined:
                    self.step("join")
                base, expected = len(self.log), self.accounts.next_base
                if expected is not None and expected != base:
                    assert "foreign" in self.log[self.accounts.end :]  # nothing else makes it wrong
                self.log += ["own", "own"]
                self.accounts.acknowledged(base, 2, self.committed_end)
                self.sent_end = self.seen_to = len(self.log)
                self.read()
            case "lose" if self.joined:  # written, but the acknowledgement is lost: it ends aborted
                self.log.append("own")
                self.end(commit=False)
            case "commit" | "abort" if self.joined:
                self.end(commit=event == "commit")
            case "lane" if not self.joined:  # it joins there though this lane's marker may be late
                self.accounts.change_lane()
                self.joined = True
            case "restart":
                if self.joined:
                    self.end(commit=False)
                self.accounts = OffsetAccounts(self.committed_end)
            case "foreign":
                self.log.append("foreign")
            case "marker":
                self.flush(1)
            case "idle" if not self.joined:
                self.accounts.idle(len(self.log))
                self.read()
                if not self.late:
                    self.seen_to = len(self.log)
            case _:
                pass

    def end(self, commit: bool) -> None:
        if commit:
            self.accounts.committed()
            self.committed_end = self.sent_end or self.committed_end
        else:
            self.accounts.aborted()
        self.joined, self.sent_end = False, None
        self.late += 1

    def flush(self, most: int = 1_000) -> None:
        """Markers are written before the same transactional id adds the partition again."""
        written = min(self.late, most)
        self.log += ["marker"] * written
        self.late -= written

    def read(self) -> None:
        ranges = self.accounts.unexplained()
        self.flagged |= any("foreign" in self.log[one.low : one.end] for one in ranges)


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
@example(["send", "commit", "foreign", "lane", "send"])  # where the marker is due, and late
@example(["send", "commit", "foreign", "send"])  # beside a marker
@example(["send", "foreign", "abort", "send"])
@example(["send", "commit", "foreign", "foreign", "idle", "send"])  # the marker is written after the look
@example(["foreign", "send", "commit", "restart", "foreign", "send"])
def test_foreign_records_are_distinguished_from_markers_and_aborted_records(events: list[Event]) -> None:
    partition = Partition()
    for event in events:
        partition.step(event)
        assert not partition.flagged or "foreign" in partition.log
        assert partition.flagged or "foreign" not in partition.log[: partition.seen_to]


def test_a_plain_run_of_transactions_reads_nothing() -> None:
    """Nor does a transaction that the partition joined and sent no record in."""
    accounts = OffsetAccounts(0)
    end = 0
    for markers in (0, 1, 1, 3):
        for _ in range(markers):
            accounts.committed()
        accounts.acknowledged(end + markers, 5, 0)
        end += markers + 5
    assert (accounts.unexplained(), accounts.end) == ([], end)


def test_what_was_truncated_after_an_abort_is_read_from_the_committed_end_on() -> None:
    accounts = OffsetAccounts(100)
    accounts.acknowledged(100, 50, 100)
    accounts.acknowledged(103, 1, 100)
    assert accounts.unexplained() == [OffsetRange(100, 103)]


def test_ranges_that_are_not_read_are_bounded() -> None:
    accounts = OffsetAccounts(0)
    for number in range(1_000):
        accounts.acknowledged(10 * number + 5, 5, 0)
    ranges = accounts.unexplained()
    assert len(ranges) <= 16
    assert (ranges[0].low, ranges[-1].end) == (0, 9_995)
