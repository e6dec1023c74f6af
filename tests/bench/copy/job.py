"""Our side as people run it: the Spark application, started with spark-submit from a job spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, JobSpec, encode
from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run
from tests.bench.copy.slots import flow_of
from tests.chaos.copiers import submit_command, submit_environ


class Job:
    """Exactly once, with every duty of a job: follow, heartbeats, status."""

    name = "repl"
    warm_s = 3.0

    def __init__(self, copy: CopySettings | None = None) -> None:
        self._copy = copy or CopySettings()

    def flows(self, run: Run) -> list[FlowSpec]:
        """The flow that is measured, and those beside it, each of which takes a slot of its own."""
        return [flow_of(run)]

    def start(self, run: Run) -> Running:
        slots = self.slots(run)
        command, log = self.command(run, f"local[{slots}]", slots), run.folder / f"{run.tag}.log"
        return Running.start(command, run.mirror_topic, log, self.environ(run))

    def slots(self, run: Run) -> int:
        return run.slots + len(self.flows(run)) - 1

    def environ(self, run: Run) -> dict[str, str]:
        return submit_environ(run.folder)

    def command(
        self, run: Run, master: str, slots: int, conf: Mapping[str, str] | None = None
    ) -> Sequence[str]:
        """Writes the job spec, and returns the command that submits the job to the master."""
        spec = JobSpec(
            job=run.tag,
            topology="bench",
            destination="there",
            clusters={
                "here": ClusterSpec(bootstrap=run.source),
                "there": ClusterSpec(bootstrap=run.destination),
            },
            flows=self.flows(run),
            slots=slots,
            copy=self._copy,
            registries=dict(run.registries),
            metrics=None,
        )
        file = run.folder / f"{run.tag}.json"
        file.write_bytes(encode(spec))
        submit, *words = submit_command(spec, file, master)
        given = [word for key, value in (conf or {}).items() for word in ("--conf", f"{key}={value}")]
        return [submit, *given, *words]
