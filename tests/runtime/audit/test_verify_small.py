"""Which comparisons need no Spark, and what Spark finds of one that does."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure
from runtime.audit.verify.pieces import PlannedPartition, VerificationPiece, VerifiedPiece, VerifyRequest
from runtime.audit.verify.plan import VerificationFile
from runtime.audit.verify.small import PIECES, SMALL, is_small, needs_spark, verify_small
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, SelectionSpec
from runtime.contract.spec.transform import TransformSpec

FLOW = FlowSpec(name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=["t"]))


def request(port: int = 1) -> VerifyRequest:
    at = ClusterSpec(bootstrap=f"127.0.0.1:{port}")
    return VerifyRequest(flow=FLOW, source=at, destination=at, within_s=0.2)


def piece(offsets: int, copies: int | None = None, low: int = 0) -> VerificationPiece:
    behind = low + (offsets if copies is None else copies)
    return VerificationPiece(
        0, "t", 0, b"\x01", "t", b"\x02", low, low + offsets, low, behind, behind, b"\x00", (), False
    )


def planned(*pieces: VerificationPiece) -> PlannedPartition:
    return PlannedPartition(PartitionKey("f", "t", 0), "t", 0, pieces[-1].high, list(pieces))


def equal(one: VerificationPiece) -> VerifiedPiece:
    return VerifiedPiece(0, one.low, one.high, one.high - one.low, 0, 0, 0, 0, [], False, "")


@pytest.mark.parametrize(
    ("pieces", "small"),
    [
        ([], True),
        ([piece(SMALL)], True),
        ([piece(SMALL), piece(1)], False),
        ([piece(1, SMALL + 1)], False),  # a destination that others write to
        ([piece(SMALL, 0), piece(0, 1)], False),
        ([piece(1)] * PIECES, True),
        ([piece(0)] * (PIECES + 1), False),
    ],
)
def test_both_sides_count(pieces: list[VerificationPiece], small: bool) -> None:
    assert is_small(pieces) is small


def test_a_transform_and_a_rate_need_spark() -> None:
    plain = request()
    transformed = replace(FLOW, transform=TransformSpec(where="key IS NOT NULL"))
    assert not needs_spark(plain)
    assert needs_spark(replace(plain, rate=1_000_000))
    assert needs_spark(replace(plain, flow=transformed))


def said(line: str) -> None:
    pytest.fail(f"nothing was to be said: {line}")


def test_spark_continues_from_the_plan_of_a_large_comparison(tmp_path: Path) -> None:
    file = VerificationFile(tmp_path / "large.jsonl")
    file.begin(7, [planned(piece(SMALL + 1))])
    assert verify_small(request(), file, said, resume=True) is None
    kept = file.load()
    assert kept is not None
    assert (kept.at_ms, kept.planned, kept.pieces) == (7, [planned(piece(SMALL + 1))], [])


def test_only_what_is_left_counts_and_the_file_goes_at_the_end(tmp_path: Path) -> None:
    large, empty = piece(SMALL + 1), piece(0, low=SMALL + 1)
    file = VerificationFile(tmp_path / "resumed.jsonl")
    file.begin(7, [planned(large, empty)])
    file.add([large, empty], [equal(large), equal(empty)])
    found = verify_small(request(), file, said, resume=True)
    assert found is not None
    (partition,) = found.partitions
    assert (found.at_ms, partition.compared, partition.equal_up_to) == (7, SMALL + 1, SMALL + 1)
    assert file.load() is None


def test_an_interrupted_comparison_is_planned_again_without_resume(tmp_path: Path) -> None:
    file = VerificationFile(tmp_path / "old.jsonl")
    file.begin(7, [planned(piece(3))])
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and it does not listen: connections are refused
        with pytest.raises(AuditFailure):
            verify_small(request(nobody.getsockname()[1]), file, said, resume=False)


def test_the_user_is_told_where_it_goes_on(tmp_path: Path) -> None:
    file, lines = VerificationFile(tmp_path / "told.jsonl"), list[str]()
    first, second = piece(SMALL), piece(SMALL, low=SMALL)
    file.begin(7, [planned(first, second)])
    file.add([first], [equal(first)])
    verify_small(request(), file, lines.append, resume=True)
    assert lines == ["goes on behind 1 of 2 stretches"]


def test_pieces_that_could_not_be_read_stay_in_the_file(tmp_path: Path) -> None:
    file = VerificationFile(tmp_path / "unread.jsonl")
    file.begin(7, [planned(piece(3))])
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        found = verify_small(request(nobody.getsockname()[1]), file, said, resume=True)
    assert found is not None
    assert found.unread
    assert file.load() is not None
