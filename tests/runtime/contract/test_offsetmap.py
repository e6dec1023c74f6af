"""R6: the offset map is exact, through every kind of offset that holds no copied record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.records.offset_map import (
    EndOfOffsetMap,
    MappedOffset,
    NotYetCopied,
    OffsetMap,
    Run,
    Span,
    UnmappedOffset,
    append,
    count_runs,
    decode_runs,
    destination_end_of,
    encode_runs,
    invert_runs,
    trimmable,
)
from tests.fakes.progress import exact, near

# Source offsets 10…19 are covered: 10, 11 went to 100, 101; 14…16 to 103…105 behind a marker; the rest was
# not copied. Nothing is known below 10.
COVERED = Span(10, 20, 100, 106, encode_runs([Run(10, 100, 2), Run(14, 103, 3)], 10, 100))

LATER = Span(25, 30, 110, 112, encode_runs([Run(26, 110, 2)], 25, 110))


@pytest.mark.parametrize(
    ("spans", "translated", "origins"),
    [
        (
            [COVERED],
            {
                9: UnmappedOffset(),
                10: exact(100),
                11: exact(101),
                12: near(103),
                14: exact(103),
                16: exact(105),
                17: EndOfOffsetMap(106),
                20: EndOfOffsetMap(106),
                21: NotYetCopied(),
            },
            {
                99: UnmappedOffset(),
                100: exact(10),
                102: near(14),
                105: exact(16),
                106: EndOfOffsetMap(20),
                107: NotYetCopied(),
            },
        ),
        ([COVERED, LATER], {12: UnmappedOffset(), 25: near(110)}, {}),  # a gap hides what lies before it
        ([], {0: UnmappedOffset()}, {}),
        ([Span(5, 5, 7, 7, b"")], {5: EndOfOffsetMap(7)}, {}),
    ],
)
def test_an_offset_is_that_of_the_first_copied_record_at_or_after(
    spans: list[Span], translated: dict[int, object], origins: dict[int, object]
) -> None:
    offsets = OffsetMap(spans)
    assert {offset: offsets.translate(offset) for offset in translated} == translated
    assert {offset: offsets.origin(offset) for offset in origins} == origins


def test_runs_that_meet_at_both_sides_become_one() -> None:
    runs: list[Run] = []
    for run in (Run(0, 0, 2), Run(2, 2, 3), Run(5, 6, 1)):
        append(runs, run)
    assert runs == [Run(0, 0, 5), Run(5, 6, 1)]


@pytest.mark.parametrize("run", [Run(1, 9, 1), Run(9, 1, 1), Run(9, 9, 0)])
def test_a_run_that_goes_back_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="un"):
        append([Run(0, 0, 5)], run)


def test_only_what_the_destination_no_longer_holds_may_be_trimmed() -> None:
    spans = [Span(0, 5, 0, 5, b""), Span(5, 9, 5, 9, b""), Span(9, 9, 9, 9, b"")]
    assert [trimmable(spans, start) for start in (0, 4, 5, 9, 99)] == [0, 0, 1, 2, 2]


# A partition's life, offset by offset: what lies at the source, what happened at the destination meanwhile.
Event = st.sampled_from(["record", "hole", "marker", "aborted", "dropped", "foreign", "commit", "seal"])


class Model:
    """The naive map: a dictionary of every single record, and the spans that the product would have
    written.
    """

    def __init__(self, source: int, destination: int) -> None:
        self.low, self.destination_low = source, destination
        self.source, self.destination = source, destination
        self.copied: dict[int, int] = {}
        self.runs: list[Run] = []
        self.spans: list[Span] = []
        self._span = (source, destination, destination)

    def live(self, event: str) -> None:
        match event:
            case "record":
                append(self.runs, Run(self.source, self.destination, 1))
                self.copied[self.source] = self.destination
                self.source += 1
                self.destination += 1
                self._span = (*self._span[:2], self.destination)
            case "hole" | "marker" | "aborted" | "dropped":
                self.source += 1
            case "foreign" | "commit":
                self.destination += 1
            case "seal":
                self.close()

    def close(self) -> None:
        low, destination_low, end = self._span
        encoded = encode_runs(self.runs, low, destination_low)
        assert decode_runs(encoded, low, destination_low) == tuple(self.runs)
        self.spans.append(Span(low, self.source, destination_low, end, encoded))
        assert self.spans[-1].runs == tuple(self.runs)
        self.runs = []
        self._span = (self.source, end, end)

    @property
    def end(self) -> int:
        return self.spans[-1].destination_end

    @staticmethod
    def expected(offset: int, placed: dict[int, int], low: int, end: int, other_end: int) -> object:
        if offset < low:
            return UnmappedOffset()
        after = [placed[place] for place in placed if place >= offset]
        if after:
            return MappedOffset(after[0], exact=offset in placed)
        return EndOfOffsetMap(other_end) if offset <= end else NotYetCopied()


@given(st.lists(Event, max_size=60), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 60))
def test_every_offset_translates_as_the_naive_model_says_and_trimming_makes_no_answer_wrong(
    events: list[str], source: int, destination: int, trimmed_records: int
) -> None:
    model = Model(source, destination)
    for event in events:
        model.live(event)
    model.close()
    whole, back = OffsetMap(model.spans), {there: here for here, there in model.copied.items()}
    log_start = destination + trimmed_records
    trimmed = OffsetMap(model.spans[trimmable(model.spans, log_start) :])
    for offset in range(source - 1, model.source + 2):
        expected = model.expected(offset, model.copied, source, model.source, model.end)
        assert whole.translate(offset) == expected
        if trimmed.translate(offset) != expected:
            assert trimmed.translate(offset) == UnmappedOffset()
            assert offset < trimmed.low
            assert not isinstance(expected, MappedOffset) or expected.offset < log_start or not expected.exact
    for offset in range(destination, model.end + 2):
        assert whole.origin(offset) == model.expected(offset, back, destination, model.end, model.source)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(1, 300))), st.integers(0, 9))
def test_encoded_runs_are_counted_and_inverted(gaps: list[tuple[int, int, int]], low: int) -> None:
    runs, source, destination = [], low, 2 * low
    for before, behind, records in gaps:
        runs.append(Run(source + before, destination + behind, records))
        source, destination = runs[-1].source_end, runs[-1].destination_end
    encoded = encode_runs(runs, low, 2 * low)
    assert count_runs(encoded) == len(runs)
    assert destination_end_of(encoded, 2 * low) == (runs[-1].destination_end if runs else 2 * low)
    inverted = [Run(run.destination, run.source, run.records) for run in runs]
    assert invert_runs(encoded) == encode_runs(inverted, 2 * low, low)
