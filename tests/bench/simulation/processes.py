"""Starts simulated clusters as processes, and reads what they and other processes cost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import msgspec
import psutil

from tests.bench.simulation.contents import ClusterSize
from tests.bench.simulation.faults import FaultRates

_ENDS_WITHIN_S = 30.0


class Counted(msgspec.Struct, frozen=True):
    """What the brokers of a cluster have counted. `requests` are by API key.

    `committed` is the number of offsets that groups have committed there now.
    """

    requests: dict[str, int] = {}
    received: int = 0
    sent: int = 0
    faults: dict[str, int] = {}
    unanswered: dict[str, int] = {}
    committed: int = 0

    def since(self, before: Counted) -> Counted:
        """Returns what was counted after `before`."""
        return Counted(
            _less(self.requests, before.requests),
            self.received - before.received,
            self.sent - before.sent,
            _less(self.faults, before.faults),
            _less(self.unanswered, before.unanswered),
            self.committed,
        )

    @property
    def total(self) -> int:
        """The number of requests."""
        return sum(self.requests.values())


def _less(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {key: count - before.get(key, 0) for key, count in after.items()}


class BrokerProcess:
    """The brokers of one simulated cluster while the block lasts."""

    def __init__(self, size: ClusterSize, seed: int, rates: FaultRates) -> None:
        words = [msgspec.json.encode(size).decode(), str(seed), msgspec.json.encode(rates).decode()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.simulation.brokers", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = size.name
        self.ports: Sequence[int] = []

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_ENDS_WITHIN_S)
            raise SystemExit(f"the brokers of {self.name} did not start")
        self.ports = msgspec.json.decode(line, type=list[int])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(_ENDS_WITHIN_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def counted(self) -> Counted:
        """Asks the brokers what they have counted. Fails where a request was one that they do not know."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        found = msgspec.json.decode(self._process.stdout.readline(), type=Counted)
        if found.unanswered:
            raise SystemExit(f"requests that the brokers of {self.name} do not know: {found.unanswered}")
        return found

    def cpu_s(self) -> float:
        """Returns the seconds of CPU that the brokers took."""
        return cpu_s(self._process.pid)


class SimulatedClusters:
    """Both clusters of a measurement while the block lasts."""

    def __init__(self, sizes: Iterable[ClusterSize], seed: int, rates: FaultRates) -> None:
        self._brokers = [BrokerProcess(size, seed, rates) for size in sizes]
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for one in self._brokers:
            self._open.enter_context(one)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def bootstrap(self) -> dict[str, str]:
        """The addresses of each cluster."""
        return {one.name: one.bootstrap for one in self._brokers}

    def counted(self) -> dict[str, Counted]:
        """Returns what each cluster has counted."""
        return {one.name: one.counted() for one in self._brokers}

    def cpu_s(self) -> float:
        """Returns the seconds of CPU that all brokers took."""
        return sum(one.cpu_s() for one in self._brokers)


def cpu_s(pid: int) -> float:
    """Returns the seconds of CPU that a process took."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
