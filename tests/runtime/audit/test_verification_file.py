"""What a comparison that was cut remembers: the plan it had, and what was read to its end."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from runtime.audit.verify.pieces import (
    PlannedPartition,
    ReadFile,
    RecordContent,
    RecordDifference,
    VerificationPiece,
    VerifiedPiece,
)
from runtime.audit.verify.plan import VerificationFile, remaining
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.views.records_view import UncomparableRange

SECRET = RecordContent(0, b"key", None, (("name", b"\x00"),))


def piece(low: int) -> VerificationPiece:
    return VerificationPiece(
        0, "t", 0, b"\x01", "t", b"\x02", low, low + 10, low, low + 10, 99, b"\x00", (), False
    )


def verified(low: int, why: str = "", *, passed: bool = False) -> VerifiedPiece:
    edits = [RecordDifference("missing", low, low, None, None, SECRET, None)]
    return VerifiedPiece(0, low, low + 10, 9, 0, 0, 0, 0, edits, False, why, passed)


PLANNED = PlannedPartition(
    PartitionKey("f", "t", 0),
    "t",
    0,
    30,
    [piece(0), piece(10), piece(20)],
    [UncomparableRange(low=0, end=5, why="")],
)


def begun(folder: Path) -> VerificationFile:
    book = VerificationFile(folder / "book.jsonl")
    book.begin(7, [PLANNED])
    return book


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    book = begun(tmp_path)
    book.add([piece(0)], [verified(0)])
    book.add(
        [piece(0)], [verified(10, "dc1 does not answer"), verified(20, "retention took it", passed=True)]
    )
    kept = VerificationFile(tmp_path / "book.jsonl").load()
    assert kept is not None
    assert (kept.at_ms, kept.planned) == (7, [PLANNED])
    assert kept.pieces == [verified(0), verified(20, "retention took it", passed=True)]
    assert remaining([[piece(0)], [piece(10), piece(20)]], kept.pieces) == [[piece(10)]]


def test_the_files_of_a_partition_are_read_again_together(tmp_path: Path) -> None:
    """Lines of a file that was not read may be taken for those of another one."""
    files = [replace(piece(low), read=ReadFile("a.log", 10, b"", 1)) for low in (0, 10)]
    book = begun(tmp_path)
    book.add(files, [verified(0), verified(10, "the file was renamed meanwhile")])
    kept = book.load()
    assert kept is not None
    assert remaining([files], kept.pieces) == [files]
    book.add(files, [verified(0), verified(10)])
    kept = book.load()
    assert kept is not None
    assert remaining([files], kept.pieces) == []


def test_a_line_that_was_cut_costs_nothing_but_its_own(tmp_path: Path) -> None:
    book = begun(tmp_path)
    book.add([piece(0)], [verified(0)])
    file = tmp_path / "book.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    book.add([piece(0)], [verified(10)])
    book.add([piece(0)], [verified(20)])
    kept = book.load()
    assert kept is not None
    assert kept.pieces == [verified(20)]


def test_it_begins_anew_and_is_gone_at_the_end(tmp_path: Path) -> None:
    begun(tmp_path).add([piece(0)], [verified(0)])
    book = begun(tmp_path)
    kept = book.load()
    assert kept is not None
    assert kept.pieces == []
    assert (tmp_path / "book.jsonl").stat().st_mode & 0o777 == 0o600
    book.close()
    assert book.load() is None


def test_what_is_no_book_of_this_release_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "book.jsonl"
    file.write_text('{"version": 0}\n')
    assert VerificationFile(file).load() is None
    assert VerificationFile(None).load() is None
