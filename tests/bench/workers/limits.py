"""What bounds a slot in the scale measurement: a share of a core, or the link of its machine.

Brokers, Workers and executors' JVMs are not limited: a slot is the Python process that an executor started.

A second of a core is worth less when other cores are busy: they share caches, and two cores of a virtual
machine are often the two threads of one. So a loop with the same share runs beside the slots, copies and sums
up memory as they do, and says what a second was worth.
"""

from __future__ import annotations

import multiprocessing
import os
import zlib
from contextlib import suppress
from ctypes import c_uint64
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil

from tests.bench.copy.workloads import Workload
from tests.chaos.copiers import DAEMON
from tests.network import Host
from tests.processes import words_of
from tests.records import wait_for
from tests.spark.standalone import Worker

_GROUPS = Path("/sys/fs/cgroup/cpu")
_REMOVED_WITHIN_S = 60.0
_PERIOD_US, _LEAST_US = 100_000, 1_000  # a quota of less than 1 ms is refused
_LOOP_BYTES, _LOOP_STARTS_S = 1 << 20, 60.0


class Limit(Protocol):
    """A Limit holds until it is closed. `each` is what a slot may use in a second, `used` what all used.

    `worth` is what a second of CPU was worth since the last call, in rounds of the loop; None where the limit
    is not of CPU.

    Making one raises SystemExit where the machine can't enforce it.
    """

    text: str
    each: float
    workload: Workload

    def add(self, slot: psutil.Process, worker: Worker) -> None: ...
    def remove(self, slot: psutil.Process) -> None: ...
    def used(self) -> float: ...
    def worth(self) -> float | None: ...
    def close(self) -> None: ...


class CpuShares:
    """Each slot may use a share of a core, by the quota of a control group (cgroup v1)."""

    # A slot adds a header to each record, so it needs nearly as much CPU as the brokers. Compressed batches,
    # which it copies whole, take the brokers twice as much as the slot: these would be the bound sooner.
    workload = Workload("1k-headers", 1024, "none", 100, provenance="headers")

    def __init__(self, share: float) -> None:
        self.text, self.each = f"{share:.0%} of a core", share
        self._slots: list[psutil.Process] = []
        self._folder = _GROUPS / f"repl-bench-{os.getpid()}"
        try:
            self._folder.mkdir()
            (self._folder / "cpu.cfs_quota_us").read_text()
        except OSError as error:
            raise SystemExit(
                f"{self._folder} can't be used as a control group: {error.strerror} — this measurement needs"
                " cgroup v1 with the cpu controller at /sys/fs/cgroup/cpu, and root"
            ) from error
        processes = multiprocessing.get_context("spawn")
        self._rounds = processes.RawValue(c_uint64)
        self._loop = processes.Process(target=_go_round, args=(self._rounds,), daemon=True)
        self._loop.start()
        self._looping = psutil.Process(self._loop.pid)
        wait_for(lambda: self._rounds.value > 0, _LOOP_STARTS_S)
        self._limit(self._looping)
        self._before = (0, 0.0)

    def add(self, slot: psutil.Process, worker: Worker) -> None:
        """Limits all threads of the process."""
        assert DAEMON in words_of(slot), f"{slot} on {worker.host} is no Python worker of Spark"
        self._limit(slot)
        self._slots.append(slot)

    def _limit(self, process: psutil.Process) -> None:
        group = self._folder / str(process.pid)
        group.mkdir()
        period = max(_PERIOD_US, int(_LEAST_US / self.each))
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(max(int(period * self.each), _LEAST_US)))
        (group / "cgroup.procs").write_text(str(process.pid))

    def remove(self, slot: psutil.Process) -> None:
        """Counts a slot no more that has ended."""
        self._slots.remove(slot)

    def used(self) -> float:
        """Seconds of CPU."""
        return sum(map(_cpu_s, self._slots))

    def worth(self) -> float:
        now = (self._rounds.value, _cpu_s(self._looping))
        rounds, seconds = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        return rounds / seconds

    def close(self) -> None:
        self._loop.kill()
        self._loop.join()
        for group in [path for path in self._folder.iterdir() if path.is_dir()] + [self._folder]:
            wait_for(partial(_removed, group), _REMOVED_WITHIN_S)  # it is busy while a process ends


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _go_round(rounds: Any) -> None:
    data = bytearray(os.urandom(_LOOP_BYTES))
    while True:
        zlib.crc32(bytes(data))
        rounds.value += 1


def _removed(group: Path) -> bool:
    """Moves the group's processes to the root group, and returns whether the group could be removed."""
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (_GROUPS / "cgroup.procs").write_text(pid)
    try:
        group.rmdir()
    except OSError:
        return False
    return True


class Links:
    """The cable of each slot's machine carries so many bytes a second in each direction."""

    workload = Workload("1k-none", 1024, "none", 100)  # the bytes of values are nearly those on the link

    def __init__(self, mb_per_s: float) -> None:
        self.text, self.each = f"links of {mb_per_s:g} MB/s", mb_per_s * 1e6
        self._hosts: dict[psutil.Process, Host] = {}

    def add(self, slot: psutil.Process, worker: Worker) -> None:
        """Limits the cable of the machine on which the slot runs."""
        if not worker.host.namespace:
            raise SystemExit("links need network namespaces: root, and the command ip of iproute2")
        assert worker.host not in self._hosts.values(), f"two slots are on {worker.host}: {slot}"
        worker.host.limit(self.each)
        self._hosts[slot] = worker.host

    def remove(self, slot: psutil.Process) -> None:
        """Lifts the limit of the machine of a slot that has ended."""
        self._hosts.pop(slot).limit(None)

    def used(self) -> float:
        """Bytes in the direction that carried more."""
        return max(map(sum, zip(*(host.carried() for host in self._hosts.values()), strict=True)))

    def worth(self) -> None:
        """A second of CPU counts for nothing here."""

    def close(self) -> None:
        for host in self._hosts.values():
            host.limit(None)
