"""`repl verify`: a Spark application compares both sides of a flow, and can continue after a cut."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace

from planner.config import load
from planner.graph.routes import opposite_of
from planner.model.diagnostic import Failure, error, note, warning
from planner.model.topology import ENDED
from planner.workflows.interaction import Noticed, ProgressHandler, silent
from planner.workflows.one_off import on_spark
from planner.workflows.spark import job_spec, launcher_home
from planner.workflows.topology import TopologyRequest, flow_of
from runtime.audit.verify.pieces import VerifyRequest, decode_outcome, encode_request
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.views.records_view import VerificationReport

_TASKS = 2  # on a cluster, for a job that has a slot for each core


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyFlowRequest(TopologyRequest):
    """A request to compare both sides of a flow.

    `topics`: a regex for whole names at the source. `low` and `high` bound the source offsets of each
    partition, `high` not included; `last` selects so many before the end. `sample`: a share in percent.
    `rate`: at most so many bytes a second. `resume`: continue where the same comparison was cut.
    `on_cluster`: run on the Spark cluster of the flow's job, not on this machine.
    """

    flow: str
    topics: str | None = None
    low: int | None = None
    high: int | None = None
    last: int | None = None
    sample: float = 100.0
    rate: int | None = None
    resume: bool = False
    on_cluster: bool = False


def verify(request: VerifyFlowRequest, progress: ProgressHandler = silent) -> VerificationReport:
    """Compares keys, values, headers, timestamps and order of everything that a flow has copied up to now.

    It only reads, and the flow may run. Failure: a side can't be read, or Spark can't be started.
    """
    from runtime import audit

    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    job = job_spec(topology, flow, request.timeout_ms, progress)
    opposite = opposite_of(flow, topology)
    compared = VerifyRequest(
        flow=job.flow(flow.name),
        source=job.clusters[flow.source_cluster],
        destination=job.clusters[flow.destination_cluster],
        topics=request.topics,
        low=request.low,
        high=request.high,
        last=request.last,
        sample=request.sample,
        rate=request.rate,
        tail=flow.state not in ENDED,  # other producers may write to the destination of an ended flow
        within_s=request.timeout_ms / 1000,
        opposite=opposite.name if opposite is not None else None,
    )
    where = _on_its_cluster(job) if request.on_cluster else None
    main = Path(audit.__file__).parent / "verify" / "main.py"
    with verification_file(compared, request.path, progress, resume=request.resume) as file:
        arguments = [*(["--book", str(file)] if file is not None else []), *["--resume"] * request.resume]
        answer = on_spark(main, encode_request(compared), "verify: ", progress, arguments, where)
    outcome = decode_outcome(answer)
    if outcome.verified is None:
        raise Failure(error(f"{outcome.cluster}: {outcome.why}", outcome.way_out))
    return outcome.verified


def _on_its_cluster(job: JobSpec) -> JobSpec:
    """Runs as many tasks at once as the job has slots, so that a rate can be shared out."""
    launch = job.launch
    if launch.launcher not in ("standalone", "yarn"):
        where = f"{launch.master} (launcher {launch.launcher})"
        raise Failure(
            error(
                f"the job {job.job} runs at {where}: standalone and yarn take another application",
                "leave --on-cluster out",
            )
        )
    slots = job.slots or _TASKS
    conf = {**launch.conf, "spark.default.parallelism": str(slots)}
    return replace(job, slots=slots, launch=replace(launch, conf=conf))


@contextmanager
def verification_file(
    request: VerifyRequest, path: Path, progress: ProgressHandler, *, resume: bool
) -> Iterator[Path | None]:
    """Yields the file that records the compared ranges, so that a comparison can continue after a cut.

    There is one for each comparison: flow, topics, range and sample. None where nothing can be written.
    """
    from runtime.launch.folder import hold

    file = launcher_home(path) / "verify" / f"{quote(request.flow.name, safe='')}-{_digest(request)}.jsonl"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = hold(file.with_suffix(".lock"))
    except OSError as problem:
        what = f"this comparison can't continue after a cut: {file.parent}: {problem.strerror or problem}"
        progress(Noticed(warning(what)))
        yield None
        return
    if lock is None:
        raise Failure(error(f"the same comparison of {request.flow.name} runs already", "wait for its end"))
    try:
        if resume and not file.exists():
            progress(Noticed(note("no earlier comparison was cut: this one starts at the beginning")))
        yield file
    except KeyboardInterrupt:
        if file.exists():
            what = "what was compared is kept"
            progress(Noticed(note(what, "run the same command with --resume to continue there")))
        raise
    finally:
        file.with_suffix(".lock").unlink(missing_ok=True)
        os.close(lock)


def _digest(request: VerifyRequest) -> str:
    asked = encode_request(replace(request, rate=None, within_s=0.0))
    return hashlib.sha256(asked).hexdigest()[:12]
