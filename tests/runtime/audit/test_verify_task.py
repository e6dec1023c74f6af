"""Which lines of a piece are compared at all, and what is passed over by design."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.audit.records_fetch import Found
from runtime.audit.verify_origin import Filter
from runtime.audit.verify_request import Piece, PieceVerified, VerifyRequest
from runtime.audit.verify_task import Pair, Way
from runtime.contract.jobspec import ClusterSpec, FlowSpec, SelectionSpec, TemplateRule
from runtime.contract.offsetmap import Run, encode_runs
from runtime.contract.producers import Producer
from runtime.contract.provenance import Home

OWN, OTHER, NOBODY = 1, 2, -1
PRODUCERS = {
    OWN: Producer("one", "dc1", "id-1", TemplateRule(text="{topic}")),
    OTHER: Producer("other", "dc3", "id-3", TemplateRule(text="{topic}")),
}
RUNS = (Run(0, 0, 2), Run(5, 4, 2))  # nothing of the source offsets 2, 3, 4; others at 2 and 3


def pair(*, shared: bool = False, gaps: tuple[tuple[int, int, str], ...] = ()) -> Pair:
    flow = FlowSpec(
        name="one", source="dc1", destination="dc2", topics=SelectionSpec(include=["t"]), shared=shared
    )
    asked = VerifyRequest(
        flow=flow, source=ClusterSpec(bootstrap="a:1"), destination=ClusterSpec(bootstrap="b:1")
    )
    piece = Piece(0, "t", 0, b"", "t", b"", 0, 7, 0, 8, 6, encode_runs(RUNS, 0, 0), gaps, False)
    return Pair(piece, Filter(flow, "t", Home("id-2", "t"), {}), asked, PRODUCERS)


def found(offset: int, value: bytes, producer: int = OWN) -> Found:
    return Found(0, offset, 0, None, value, (), producer)


def compared(made: Pair, here: list[Found], there: list[Found]) -> PieceVerified:
    made.here(here)
    made.there(there)
    made.comparer.here_ended()
    made.comparer.there_ended()
    made.comparer.advance()
    return made.seen("", passed=False)


COPIED = [found(at, b"%d" % at) for at in (0, 1, 5, 6)]
COPIES = [found(at, value) for at, value in ((0, b"0"), (1, b"1"), (4, b"5"), (5, b"6"))]


def with_(extra: Found) -> list[Found]:
    return sorted([*COPIES, extra], key=lambda one: one.offset)


def test_what_was_copied_is_equal() -> None:
    seen = compared(pair(), COPIED, COPIES)
    assert (seen.compared, seen.edits, seen.end) == (4, [], 7)


@pytest.mark.parametrize(
    ("changes", "extra", "differs"),
    [
        ({}, found(2, b"x", NOBODY), True),
        ({}, found(2, b"x", OWN), True),
        ({}, found(2, b"x", OTHER), False),
        ({"shared": True}, found(2, b"x", NOBODY), False),
        ({"shared": True}, found(2, b"x", OWN), True),
        ({}, found(7, b"x", NOBODY), True),
        ({}, found(7, b"x", OWN), False),  # newer than the map
        ({"gaps": ((2, 5, "orphaned"),)}, found(2, b"x", NOBODY), False),
        ({"gaps": ((2, 5, "lost"),)}, found(2, b"x", NOBODY), True),
        ({"gaps": ((2, 5, "orphaned"),)}, found(7, b"x", NOBODY), True),
    ],
)
def test_what_others_wrote(changes: dict[str, Any], extra: Found, differs: bool) -> None:
    seen = compared(pair(**changes), COPIED, with_(extra))
    wanted = (["extra"], 0) if differs else ([], 1)
    assert ([edit.what for edit in seen.edits], seen.others) == wanted


def test_a_record_in_a_gap_was_given_up_another_is_missing() -> None:
    left = [*COPIED[:2], found(3, b"3"), *COPIED[2:]]
    seen = compared(pair(gaps=((2, 5, "skipped"),)), left, COPIES)
    assert (seen.given_up, seen.edits) == (1, [])
    seen = compared(pair(), left, COPIES)
    assert [(edit.what, edit.source_offset, edit.expected) for edit in seen.edits] == [("missing", 3, None)]


def test_offsets_beside_runs() -> None:
    way = Way([(0, 0, 2), (4, 5, 2)])
    assert [way.other(at) for at in (0, 1, 2)] == [0, 1, None]
    assert way.beside(0, 7) == (2, 5)
    assert [way.other(at) for at in (3, 4, 5, 6)] == [None, 5, 6, None]
    assert way.beside(0, 7) == (7, 7)
