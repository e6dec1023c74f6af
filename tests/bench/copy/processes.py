"""A side's processes: started, measured with all their children, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from tests.labs import WITH_PARENT


@dataclass
class Running:
    """A side at work. CPU and memory are of the whole tree of processes, brokers not among them."""

    root: psutil.Popen
    topic: str  # at the destination
    log: Path
    started: float = field(default_factory=time.monotonic)
    _cpu: dict[int, float] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        topic: str,
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        with log.open("wb") as out:
            root = psutil.Popen(
                [*WITH_PARENT, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )
        return cls(root, topic, log)

    def cpu_s(self) -> float:
        """Seconds since the start; of children that ended, what they were last seen to have used."""
        for process in self._tree():
            try:
                times = process.cpu_times()
                self._cpu[process.pid] = times.user + times.system
            except psutil.Error:
                continue
        return sum(self._cpu.values())

    def rss_mb(self) -> float:
        found = 0
        for process in self._tree():
            try:
                found += process.memory_info().rss
            except psutil.Error:
                continue
        return found / 1e6

    def python_mb(self) -> float:
        """Of Spark's Python workers and their daemon alone; what they share counts once."""
        found = 0
        for process in self._tree():
            try:
                if "pyspark.worker" in process.cmdline():
                    found += process.memory_full_info().pss
            except psutil.Error:
                continue
        return found / 1e6

    def require_alive(self) -> None:
        if self.root.poll() is not None:
            words = self.log.read_text(errors="replace").splitlines()[-15:]
            raise SystemExit("\n".join([f"{self.topic}: the copying process ended:", *words]))

    def stop(self) -> None:
        """Politely, then not."""
        tree = self._tree()
        self.root.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(tree, timeout=15)
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=5)

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self.root, *self.root.children(recursive=True)]
        except psutil.Error:
            return [self.root]
