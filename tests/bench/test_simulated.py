"""A whole driver and a whole plan against simulated brokers, with failures, at a size of a few seconds."""

import pytest

from tests.bench.bench_simulated import Row, measured, with_growth
from tests.bench.simulation.contents import ClusterSize
from tests.bench.simulation.faults import Draw, Fault, FaultDraw, FaultRates

SIZE = ClusterSize(name="", partitions=60, topics_of_flow=10, offsets_of_group=20)
FAULTS = FaultRates(not_leader=0.02, closed=0.01, silent=0.0, stale_metadata=0.05, latency_ms=0.2)


@pytest.mark.slow
@pytest.mark.slow
def test_a_driver_starts_restarts_and_syncs_groups_and_a_plan_finds_no_changes() -> None:
    rows = measured(SIZE, 7, FAULTS, 1.0, "all")
    by_phase = {row.phase: row for row in rows}
    assert list(by_phase) == [
        "plan: adopt",
        "plan: no changes",
        "driver: start",
        "driver: idle",
        "driver: restart",
    ]
    start = by_phase["driver: start"]
    assert start.requests > 0
    assert {"listing", "ledger", "assignment", "groups", "status"} <= start.duties.keys()


def row(partitions: int, cpu_s: float) -> Row:
    return Row("plan", partitions, 0, 0, cpu_s, 0.0, 0.0, 0, 0.0, 0.0, 0, {})


def test_growth_is_the_exponent_of_cpu_over_size() -> None:
    rows = with_growth([row(1_000, 1.0), row(10_000, 10.0), row(100_000, 1_000.0)])
    assert [one.growth for one in rows] == [None, pytest.approx(1.0), pytest.approx(2.0)]


def test_the_fate_of_a_request_follows_from_the_seed() -> None:
    def drawn(seed: int) -> list[Draw]:
        draw = FaultDraw(seed, 1, FAULTS)
        return [draw.next(3, leads=False, lists=True) for _ in range(500)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert {one.fault for one in drawn(7)} == {Fault.NONE, Fault.CLOSED, Fault.STALE_METADATA}
