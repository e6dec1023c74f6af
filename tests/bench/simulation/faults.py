"""Draws latency and failures of simulated brokers from a seed."""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What goes wrong with one request."""

    NONE = "none"
    NOT_LEADER = "not_leader"
    CLOSED = "closed_connection"
    SILENT = "no_answer_in_time"
    STALE_METADATA = "stale_metadata"


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Shares of requests. `NOT_LEADER` and `STALE_METADATA` concern requests that can meet them."""

    not_leader: float = 0.002
    closed: float = 0.001
    silent: float = 0.0002
    stale_metadata: float = 0.01
    latency_ms: float = 0.5


@dataclass(frozen=True, slots=True)
class Draw:
    """The fate of one request: what goes wrong, and the seconds until it is answered."""

    fault: Fault
    delay_s: float


_LONGEST = 20  # the slowest answer, in mean latencies


class FaultDraw:
    """Draws the fate of each request from the seed, the broker, the API and the number of the request.

    So the fate does not depend on the order in which the requests of several connections arrive.
    """

    def __init__(self, seed: int, node: int, rates: FaultRates) -> None:
        self._prefix = f"{seed}/{node}".encode()
        self._rates = rates
        self._asked: Counter[int] = Counter()
        self.drawn: Counter[str] = Counter()

    def next(self, api: int, *, leads: bool, lists: bool) -> Draw:
        """Draws for the next request of this API. `leads`: only a leader answers it. `lists`: metadata."""
        number = self._asked[api]
        self._asked[api] = number + 1
        digest = hashlib.blake2b(b"%b/%d/%d" % (self._prefix, api, number), digest_size=8).digest()
        first, second = struct.unpack(">II", digest)
        fault = self._fault(first / 2**32, leads=leads, lists=lists)
        if fault is not Fault.NONE:
            self.drawn[fault.value] += 1
        slowness = min(-math.log1p(-second / 2**32), _LONGEST)
        return Draw(fault, self._rates.latency_ms / 1000 * slowness)

    def _fault(self, drawn: float, *, leads: bool, lists: bool) -> Fault:
        rates = self._rates
        for fault, share in (
            (Fault.CLOSED, rates.closed),
            (Fault.SILENT, rates.silent),
            (Fault.NOT_LEADER, rates.not_leader if leads else 0.0),
            (Fault.STALE_METADATA, rates.stale_metadata if lists else 0.0),
        ):
            if drawn < share:
                return fault
            drawn -= share
        return Fault.NONE
