"""The side of MirrorMaker 2 in dedicated mode, tuned; at least once, or in its exactly-once mode."""

from __future__ import annotations

from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run
from tests.mirror_maker import ONE_COPY, command

# Those of Kafka's own start script.
_JVM = ("-Xms256m", "-Xmx2g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class MirrorMaker:
    def __init__(self, *, exactly_once: bool) -> None:
        self.name = "mm2-eos" if exactly_once else "mm2"
        # The just-in-time compiler has settled by then.
        self.warm_s = 15.0
        self._exactly_once = exactly_once

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
            "dst.producer.linger.ms": "20",
            "dst.producer.compression.type": run.workload.compression,
            **ONE_COPY,
        }
        if self._exactly_once:
            config |= {
                "dedicated.mode.enable.internal.rest": "true",
                "listeners": "http://127.0.0.1:0",
                "dst.exactly.once.source.support": "enabled",
                # One transaction for each poll would be the default: slower still.
                f"{flow}.transaction.boundary": "interval",
                f"{flow}.transaction.boundary.interval.ms": "1000",
            }
        return config

    def command(self, run: Run) -> list[str]:
        return command(run.folder / f"{run.tag}.properties", self.configuration(run), _JVM)

    def start(self, run: Run) -> Running:
        return Running.start(self.command(run), run.mirror_topic, run.folder / f"{run.tag}.log")
