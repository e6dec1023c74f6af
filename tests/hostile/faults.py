"""What becomes of a request: dice choose it from a seed, or a test names it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from runtime.kafka.errors import ErrorCode as E
from tests.hostile.wire import Api, Request


class Fault(StrEnum):
    """What the proxy does with a request."""

    REFUSED = "error, not forwarded"
    APPLIED = "forwarded, error"
    LOST = "forwarded, cut"
    CUT = "cut"
    LATE = "answer late"
    FENCED = "late past a fence"
    FENCED_CUT = "cut past a fence"


_COORDINATOR = (
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.CONCURRENT_TRANSACTIONS,
)
_LEADER = (
    E.NOT_LEADER_OR_FOLLOWER,
    E.REQUEST_TIMED_OUT,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.KAFKA_STORAGE_ERROR,
    E.UNKNOWN_TOPIC_OR_PARTITION,
)
# The retriable codes of each request.
CODES: Mapping[Api, Sequence[E]] = {
    Api.PRODUCE: _LEADER,
    Api.INIT_PRODUCER_ID: _COORDINATOR,
    Api.ADD_PARTITIONS_TO_TXN: _COORDINATOR,
    Api.END_TXN: _COORDINATOR,
}
# Seconds after which the slot waits for no answer any more. Half of the late answers come before that.
PATIENCE_S: Mapping[Api, float] = {
    Api.PRODUCE: 15.0,
    Api.INIT_PRODUCER_ID: 3.0,
    Api.ADD_PARTITIONS_TO_TXN: 3.0,
    Api.END_TXN: 10.0,
}
# A transaction has one of most requests, and several to produce. Few initialise an id.
_CHANCE: Mapping[Api, float] = {
    Api.PRODUCE: 0.05,
    Api.INIT_PRODUCER_ID: 0.25,
    Api.ADD_PARTITIONS_TO_TXN: 0.10,
    Api.END_TXN: 0.15,
}
_WEIGHTS: Mapping[Fault, int] = {
    Fault.REFUSED: 4,
    Fault.APPLIED: 6,
    Fault.LOST: 4,
    Fault.CUT: 3,
    Fault.LATE: 2,
    Fault.FENCED: 2,
    Fault.FENCED_CUT: 2,
}
REFUSALS: Mapping[float, int] = {0.1: 40, 3.0: 30, 12.0: 25, 70.0: 5}
_WITHOUT_REFUSAL = 0.45
_BUSY_S = (2.0, 6.0)


class Blow(NamedTuple):
    """A fault of one request, and what follows it.

    `late_s` is how long the answer is held. Then no connection is accepted for `refuse_s` seconds, and after
    that InitProducerId is answered with CONCURRENT_TRANSACTIONS for `busy_s` seconds, as a new coordinator
    does while a slow partition lacks its marker.
    """

    fault: Fault
    code: E = E.NONE
    late_s: float = 0.0
    refuse_s: float = 0.0
    busy_s: float = 0.0


class Chooser(Protocol):
    """A Chooser says what becomes of a request; None for one that passes."""

    def choose(self, request: Request) -> Blow | None: ...

    @property
    def spent(self) -> bool: ...


class Dice:
    """Chooses at each request, until `blows` were dealt."""

    def __init__(self, dice: random.Random, blows: int, refusals: Mapping[float, int] = REFUSALS) -> None:
        self._dice = dice
        self._left = blows
        self._refusals = refusals

    @property
    def spent(self) -> bool:
        """Whether all blows were dealt."""
        return self._left <= 0

    def choose(self, request: Request) -> Blow | None:
        dice = self._dice
        if self.spent or dice.random() >= _CHANCE[request.api]:
            return None
        self._left -= 1
        (fault,) = dice.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        code = dice.choice(CODES[request.api])
        patience = PATIENCE_S[request.api]
        late = dice.choice([dice.uniform(0.2, 2.0), patience + dice.uniform(0.5, 2.0)])
        if fault is not Fault.LATE:
            late = dice.uniform(0.2, 3.0) if fault in (Fault.FENCED, Fault.FENCED_CUT) else 0.0
        refuse = busy = 0.0
        if self._refusals and not late and dice.random() >= _WITHOUT_REFUSAL:
            (refuse,) = dice.choices([*self._refusals], [*self._refusals.values()])
            busy = dice.uniform(*_BUSY_S) if dice.random() < 0.5 else 0.0
        return Blow(fault, code, late, refuse, busy)


class Named:
    """Deals the named blows in turn, each at the first request of its API after `after` ones that pass."""

    def __init__(self, *blows: tuple[Api, Blow], after: int = 3) -> None:
        self._blows = list(blows)
        self._after = after
        self._passed = 0

    @property
    def spent(self) -> bool:
        """Whether all blows were dealt."""
        return not self._blows

    def choose(self, request: Request) -> Blow | None:
        if not self._blows or request.api is not self._blows[0][0]:
            return None
        self._passed += 1
        if self._passed <= self._after:
            return None
        self._passed = 0
        return self._blows.pop(0)[1]


class Tally:
    """Counts requests by API, blows by API and fault, and what followed them."""

    def __init__(self) -> None:
        self.requests: Counter[Api] = Counter()
        self.blows: Counter[tuple[Api, Fault]] = Counter()
        self.refusals: Counter[float] = Counter()
        self.busy = 0  # answers with CONCURRENT_TRANSACTIONS to InitProducerId

    def add(self, other: Tally) -> None:
        self.requests.update(other.requests)
        self.blows.update(other.blows)
        self.refusals.update(other.refusals)
        self.busy += other.busy
