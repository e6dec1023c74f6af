"""The table of `make bench-workers`: what is linear, for each limit and load, and what a rate is."""

from dataclasses import replace

from tests.bench.workers import table
from tests.bench.workers.scale import Scaled, steady_rate

ONE = Scaled(
    limit="5% of a core",
    shape="uniform",
    slots=1,
    mb_per_s=20,
    records_per_s=20_000,
    used=0.99,
    brokers=0.1,
    machine=0.2,
    worth=4e6,
    window_s=10,
)
ROWS = [
    ONE,
    replace(ONE, slots=8, mb_per_s=152, records_per_s=152_000),
    replace(ONE, shape="skewed", mb_per_s=10),
    replace(ONE, shape="skewed", slots=8, mb_per_s=60, worth=3e6),
    replace(ONE, limit="links of 20 MB/s", mb_per_s=19, worth=None),
    replace(ONE, limit="links of 20 MB/s", slots=8, mb_per_s=76, used=0.5, worth=None),
]


def test_linear_is_by_the_one_slot_of_the_same_limit_and_load() -> None:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.scaled(ROWS).splitlines()]
    heads, _, *rows = cells
    linear, used = heads.index("of linear"), heads.index("of the limits used")
    assert [row[linear] for row in rows] == ["1.00", "0.95", "1.00", "0.75", "1.00", "0.50"]
    fair = heads.index("of linear at equal worth")
    assert [row[fair] for row in rows] == ["1.00", "0.95", "1.00", "1.00", "", ""]
    assert [row[used] for row in rows] == ["99%"] * 5 + ["50%"]


def test_the_picture_has_a_panel_for_each_limit() -> None:
    picture = table.picture(ROWS)
    assert [picture.count(f"each slot with {limit}") for limit in (ONE.limit, "links of 20 MB/s")] == [1, 1]


def test_a_rate_is_between_two_writes_and_not_between_two_moments_without_any() -> None:
    """3,000 records every 2 s; the window begins right after a write, and ends right before one."""
    samples = [(second / 2, 3_000 * int(second / 4)) for second in range(1, 24)]
    assert steady_rate(samples) == 1_500
