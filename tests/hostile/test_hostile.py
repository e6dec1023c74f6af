"""R1 to R3 behind a hostile proxy, on real brokers: a short `make hostile`, and the case behind it."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.kafka.errors import ErrorCode
from tests.hostile.faults import Blow, Chooser, Dice, Fault, Named
from tests.hostile.proxy import proxies
from tests.hostile.rounds import Outcome, Stream, cluster_specs, round_of, routes_of, slot_round, streams_of
from tests.hostile.wire import Api
from tests.labs import running_lab

pytestmark = pytest.mark.integration
SEED = 38
KINDS = ("slot", "file", "replay", "restore")
# The coordinator's log has the commit. The link is cut until the lane stops trying. Then a new coordinator
# lets the id wait for a slow marker, longer than the lane waits before its partitions may leave it.
ANSWERED_THEN_CUT = Named(
    (
        Api.END_TXN,
        Blow(Fault.APPLIED, ErrorCode.COORDINATOR_NOT_AVAILABLE, refuse_s=11.0, busy_s=9.0),
    )
)


def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path, fresh: Callable[[str], str]) -> None:
    """Five rounds at the same time, one of them the case that once doubled records."""

    def named(stream: Stream, topic: str, dice: random.Random, chooser: Chooser) -> Outcome:
        return slot_round(stream, topic, dice, chooser, partitions=8, lanes=2, spares=2)

    def once(number: int, stream: Stream) -> Outcome:
        dice, topic = random.Random(f"{SEED}/{number}"), fresh("hostile")
        if number == len(KINDS):
            return named(stream, topic, dice, ANSWERED_THEN_CUT)
        return round_of(KINDS[number], stream, topic, dice, Dice(dice, 3, {0.1: 2, 1.0: 1}))

    with (
        running_lab(tmp_path / "lab", *cluster_specs(len(KINDS) + 1, 1)) as lab,
        proxies(routes_of(lab)) as made,
        ThreadPoolExecutor(len(made)) as threads,
    ):
        streams = streams_of(lab, made, tmp_path)
        outcomes = list(threads.map(once, range(len(streams)), streams))
        blows = sum((proxy.tally.blows.total() for proxy in made), 0)
    assert ANSWERED_THEN_CUT.spent
    assert blows >= len(KINDS)
    for outcome in outcomes:
        assert outcome.exact, str(outcome)
