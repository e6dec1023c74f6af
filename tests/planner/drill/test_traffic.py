"""How a drill tells the records apart that it reads."""

from typing import Any, NamedTuple, cast

from planner.drill.load.records import DRILL_HEADER
from planner.drill.traffic import read_record


class Read(NamedTuple):
    """Stands for a message of librdkafka."""

    at: int
    content: bytes | None
    named: list[tuple[str, bytes]]

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> list[tuple[str, bytes]]:
        return self.named


def test_records_are_told_apart_also_where_they_are_tombstones_without_headers() -> None:
    """So are those that a flow copies in the place of filtered records."""
    read = [Read(4, b"v", [(DRILL_HEADER, b"7")]), Read(5, b"v", []), Read(6, None, []), Read(7, None, [])]
    found = [read_record(cast(Any, one)) for one in read]
    assert [one.id for one in found] == [b"7", b"v", b"orders-1 @ 6", b"orders-1 @ 7"]
