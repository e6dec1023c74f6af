"""R6: the offset map is exact, through every kind of offset that holds no copied record."""

import pytest
from hypothesis import given, settings
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

# Source offsets 10…19 are covered: 10, 11 went to 100, 101; 14…16 to 103…105 behind a marker; the rest was
# not copied. Nothing is known below 10.
COVERED = Span(10, 20, 100, 106, encode_runs([Run(10, 100, 2), Run(14, 103, 3)], 10, 100))


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (9, UnmappedOffset()),
        (10, MappedOffset(100, exact=True)),
        (11, MappedOffset(101, exact=True)),
        (12, MappedOffset(103, exact=False)),
        (14, MappedOffset(103, exact=True)),
        (16, MappedOffset(105, exact=True)),
        (17, EndOfOffsetMap(106)),
        (20, EndOfOffsetMap(106)),
        (21, NotYetCopied()),
    ],
)
def test_translate_is_the_first_copied_record_at_or_after(source: int, answer: object) -> None:
    assert OffsetMap([COVERED]).translate(source) == answer


@pytest.mark.parametrize(
    ("destination", "answer"),
    [
        (99, UnmappedOffset()),
        (100, MappedOffset(10, exact=True)),
        (102, MappedOffset(14, exact=False)),
        (105, MappedOffset(16, exact=True)),
        (106, EndOfOffsetMap(20)),
        (107, NotYetCopied()),
    ],
)
def test_origin_is_the_way_back(destination: int, answer: object) -> None:
    assert OffsetMap([COVERED]).origin(destination) == answer


def test_a_gap_between_spans_hides_what_lies_before_it() -> None:
    later = Span(25, 30, 110, 112, encode_runs([Run(26, 110, 2)], 25, 110))
    assert OffsetMap([COVERED, later]).translate(12) == UnmappedOffset()
    assert OffsetMap([COVERED, later]).translate(25) == MappedOffset(110, exact=False)


def test_a_map_of_nothing_knows_nothing() -> None:
    assert OffsetMap([]).translate(0) == UnmappedOffset()
    assert OffsetMap([Span(5, 5, 7, 7, b"")]).translate(5) == EndOfOffsetMap(7)


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


@settings(deadline=None)
@given(st.lists(Event, max_size=80), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_every_source_offset_translates_as_the_naive_model_says(
    events: list[str], source: int, destination: int
) -> None:
    model = Model(source, destination)
    for event in events:
        model.live(event)
    model.close()
    mapped = OffsetMap(model.spans)
    for offset in range(source - 1, model.source + 2):
        after = [model.copied[one] for one in model.copied if one >= offset]
        if offset < source:
            expected: object = UnmappedOffset()
        elif offset > model.source:
            expected = NotYetCopied()
        elif after:
            expected = MappedOffset(after[0], exact=offset in model.copied)
        else:
            expected = EndOfOffsetMap(model.end)
        assert mapped.translate(offset) == expected


@settings(deadline=None)
@given(st.lists(Event, max_size=80), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_every_destination_offset_leads_back(events: list[str], source: int, destination: int) -> None:
    model = Model(source, destination)
    for event in events:
        model.live(event)
    model.close()
    mapped = OffsetMap(model.spans)
    back = {there: here for here, there in model.copied.items()}
    for offset in range(destination, model.end + 2):
        after = [back[one] for one in back if one >= offset]
        if after:
            assert mapped.origin(offset) == MappedOffset(after[0], exact=offset in back)
        else:
            assert mapped.origin(offset) == (
                EndOfOffsetMap(model.source) if offset <= model.end else NotYetCopied()
            )


@settings(deadline=None)
@given(st.lists(Event, max_size=60), st.integers(0, 60))
def test_trimming_never_makes_an_answer_wrong(events: list[str], log_start: int) -> None:
    model = Model(0, 0)
    for event in events:
        model.live(event)
    model.close()
    whole = OffsetMap(model.spans)
    trimmed = OffsetMap(model.spans[trimmable(model.spans, log_start) :])
    for offset in range(model.source + 1):
        answer = trimmed.translate(offset)
        assert answer in (whole.translate(offset), UnmappedOffset())
        if isinstance(answer, UnmappedOffset):
            before = whole.translate(offset)
            assert offset < trimmed.low
            assert not isinstance(before, MappedOffset) or before.offset < log_start or not before.exact


@settings(deadline=None)
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


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"\x00\x00\x00", "0 records"),
        (b"\x00\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01", "63 bits"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x01" * 2, "63 bits"),
    ],
)
def test_runs_that_no_slot_writes_are_refused(broken: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_runs(broken, 0, 0)


@pytest.mark.parametrize("broken", [b"\x00", b"\x00\x00", b"\x00\x00\x01\x80"])
def test_runs_that_are_cut_off_are_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|argument"):
        decode_runs(broken, 0, 0)
