"""The side of MirrorMaker 2 in dedicated mode, tuned; at least once, or in its exactly-once mode.

It is tuned for the figure that is shown: it lingers for large batches where throughput is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.copy.processes import Running
from tests.bench.copy.run import LATENCY_LINGERS_MS, THROUGHPUT_LINGER_MS, Run
from tests.labs.mirror_maker import ONE_COPY, command

# Those of Kafka's own start script.
_JVM = ("-Xms256m", "-Xmx2g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class MirrorMaker:
    def __init__(self, *, exactly_once: bool, linger_ms: int = THROUGHPUT_LINGER_MS) -> None:
        self.name = "mm2-eos" if exactly_once else "mm2"
        self._for_latency = linger_ms != THROUGHPUT_LINGER_MS
        if self._for_latency:
            self.name += f"-linger-{linger_ms}"
        self._linger_ms = linger_ms
        # The just-in-time compiler has settled by then.
        self.warm_s = 15.0
        self._exactly_once = exactly_once

    def for_latency(self) -> Sequence[MirrorMaker]:
        """Returns the sides whose latency is measured in place of this one's."""
        return [MirrorMaker(exactly_once=self._exactly_once, linger_ms=one) for one in LATENCY_LINGERS_MS]

    def configuration(self, run: Run) -> dict[str, str]:
        """A fresh alias for each run makes all of it fresh: topics, offsets, groups."""
        here, flow = run.tag, f"{run.tag}->dst"
        config = {
            "clusters": f"{here}, dst",
            f"{here}.bootstrap.servers": run.source,
            "dst.bootstrap.servers": run.destination,
            f"{flow}.enabled": "true",
            f"{flow}.topics": run.topic,
            f"dst->{here}.enabled": "false",
            "tasks.max": "4",
            "dst.producer.batch.size": "131072",
            "dst.producer.linger.ms": str(self._linger_ms),
            f"{here}.consumer.fetch.min.bytes": "1",
            "dst.producer.compression.type": run.workload.compression,
            **ONE_COPY,
        }
        if self._exactly_once:
            config |= {
                "dedicated.mode.enable.internal.rest": "true",
                "listeners": "http://127.0.0.1:0",
                "dst.exactly.once.source.support": "enabled",
            }
            # One transaction for each poll, the default, copies fewer records a second, each of them sooner.
            if not self._for_latency:
                config |= {
                    f"{flow}.transaction.boundary": "interval",
                    f"{flow}.transaction.boundary.interval.ms": "1000",
                }
        return config

    def command(self, run: Run) -> list[str]:
        return command(run.folder / f"{run.tag}.properties", self.configuration(run), _JVM)

    def start(self, run: Run) -> Running:
        return Running.start(self.command(run), run.mirror_topic, run.folder / f"{run.tag}.log")
