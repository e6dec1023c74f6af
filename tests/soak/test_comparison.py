"""What the comparison of a soak finds in logs that are wrong on purpose."""

from collections.abc import Sequence

import pytest

from tests.soak.comparison import findings_of
from tests.soak.load import Place, Sent, number_of

PLACE = Place("orders", 0)
SENT = Sent({PLACE: [1, 2, 4, 5]}, {PLACE: {3}})


@pytest.mark.parametrize(
    ("source", "destination", "kinds"),
    [
        ([1, 2, 4, 5], [1, 2, 4, 5], {}),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], {}),
        ([1, 2, 4, 5], [1, 2, 5, 4], {}),  # 4 was replayed
        ([1, 2, 4, 5], [2, 1, 4, 5], {"reordered": 1}),
        ([1, 2, 4, 5], [1, 2, 5], {"lost": 1}),
        ([1, 2, 4, 5], [1, 2, 4, 5, 1], {"doubled": 1}),
        ([1, 2, 4, 5], [1, 2, 4, 5, 9], {"foreign": 1}),
        ([1, 2, 3, 4, 5], [1, 2, 4, 5], {"at one cluster only": 1}),
        ([1, 2, 5], [1, 2, 5], {"lost": 2}),
    ],
)
def test_each_fault_is_named(
    source: Sequence[int], destination: Sequence[int], kinds: dict[str, int]
) -> None:
    found = findings_of(SENT, {"dc1": {PLACE: source}, "dc2": {PLACE: destination}}, {4})
    assert found.kinds == kinds
    assert found.records == 4


def test_a_record_of_someone_else_has_no_number() -> None:
    assert number_of(b"17 ...") == 17
    with pytest.raises(ValueError, match="invalid literal"):
        number_of(None)
