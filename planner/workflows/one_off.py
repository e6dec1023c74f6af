"""One-off Spark applications, and those that evaluate a flow's transform.

Spark's analyzer checks transforms before a plan shows them. `repl try` shows what a transform makes of
records, evaluated by Spark as a slot does it. Request and outcome of an application travel as files.
"""

import json
import tempfile
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.config import load
from planner.graph.jobs import transform_of
from planner.graph.routes import router_of
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.observed import Observed
from planner.model.topology import Flow, Topology
from planner.workflows.interaction import ProgressHandler, SparkOutput, silent
from planner.workflows.topology import TopologyRequest, flow_of
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.transform import TransformSpec
from runtime.contract.views.transform_view import (
    CheckRequest,
    SampleRecord,
    TransformProblem,
    TrialReport,
    TryRequest,
    decode_outcome,
    encode,
)


def on_spark(
    main: Path,
    request: bytes,
    prefix: str,
    progress: ProgressHandler,
    arguments: Sequence[str] = (),
    where: JobSpec | None = None,
) -> bytes:
    """Runs an application to its end and returns its outcome. It runs here, or where the job `where` runs.

    Lines that begin with `prefix` are reported. Failure when the application can't be started or dies.
    """
    from runtime.launch.command import run_once
    from runtime.launch.launcher import LaunchError

    with tempfile.TemporaryDirectory(prefix="repl-once-") as folder:
        asked, out = Path(folder) / "request.json", Path(folder) / "outcome.json"
        asked.write_bytes(request)
        try:
            run_once(
                main,
                ["--request", str(asked), "--out", str(out), *arguments],
                said=lambda line: progress(SparkOutput(line)),
                prefix=prefix,
                where=where,
            )
        except LaunchError as failure:
            for line in failure.log:
                progress(SparkOutput(f"  {line}"))
            raise Failure(error(failure.what, failure.way_out)) from None
        return out.read_bytes()


_CODE = "transform"
_checked: set[str] = set()  # what this process has checked


def check_transforms(
    topology: Topology, observed: Observed | None = None, progress: ProgressHandler = silent
) -> None:
    """Failure where Spark refuses a transform that no job runs yet."""
    wanted = {
        name: spec
        for name, flow in topology.flows.items()
        if (spec := transform_of(flow)) is not None
        and not _runs(name, spec, observed)
        and repr(spec) not in _checked
    }
    if not wanted:
        return
    from runtime import sql

    main = Path(sql.__file__).with_name("main.py")
    answer = on_spark(main, encode(CheckRequest(wanted)), "sql: ", progress)
    problems = decode_outcome(answer).problems
    if problems:
        raise Failure(tuple(diagnostics_of(problems, topology)))
    _checked.update(map(repr, wanted.values()))


def _runs(flow: str, transform: TransformSpec, observed: Observed | None) -> bool:
    """Returns whether a job of the flow's destination was started with exactly this transform."""
    if observed is None:
        return False
    for name in observed.clusters:
        cluster = observed.reachable(name)
        for job in cluster.jobs if cluster is not None else ():
            running = {one.name: one.transform for one in job.spec.flows} if job.spec is not None else {}
            if running.get(flow) == transform:
                return True
    return False


def diagnostics_of(problems: list[TransformProblem], topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each problem, at the flow that has it."""
    for one in problems:
        flow = topology.flows[one.flow]
        place = f" (line {one.line}, column {one.column})" if one.line else ""
        yield error(
            f"{one.part}{place}: {one.why}",
            "columns are key, value, headers, topic, partition, offset, timestamp and timestamp_type",
            address=str(flow_address(one.flow)),
            source=flow.source,
            code=_CODE,
        )


DEFAULT_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TryFlowRequest(TopologyRequest):
    """A request to try a flow's transform on its newest records at the source, or on those of a file."""

    flow: str
    limit: int = DEFAULT_LIMIT
    sample: Path | None = None


def try_transform(request: TryFlowRequest, progress: ProgressHandler = silent) -> TrialReport:
    """Returns what would become of records. It only reads, and the flow need not run.

    Failure: the flow has no transform, Spark refuses it or can't be started, or no records can be read.
    """
    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    transform = transform_of(flow)
    if transform is None:
        raise Failure(
            error(
                f"flow.{flow.name} has no transform: its records travel as they are",
                "name a flow with a transform, or show records with repl read",
                source=flow.source,
            )
        )
    if request.sample is not None:
        records, source = list(sample_of(request.sample))[: request.limit], str(request.sample)
    else:
        records, source = _newest(topology, flow, request), flow.source_cluster
    if not records:
        return TrialReport(flow=flow.name, source=source, transform=transform, results=[])
    from runtime import sql

    main = Path(sql.__file__).with_name("main.py")
    answer = on_spark(main, encode(TryRequest(flow.name, transform, records)), "sql: ", progress)
    outcome = decode_outcome(answer)
    if outcome.problems:
        raise Failure(tuple(diagnostics_of(outcome.problems, topology)))
    return TrialReport(flow=flow.name, source=source, transform=transform, results=outcome.results)


def _newest(topology: Topology, flow: Flow, request: TryFlowRequest) -> list[SampleRecord]:
    from planner.workflows.audit.reading import answered, cluster_access  # a plan loads this module
    from runtime.audit.read.records import read_newest

    router = router_of(topology)
    reach = cluster_access([topology.clusters[flow.source_cluster]])[flow.source_cluster]
    found = answered(
        read_newest(
            reach,
            lambda topic: router.destination_topic(flow.name, topic) is not None,
            request.limit,
            request.timeout_ms / 1000,
        )
    )
    return [
        SampleRecord(
            topic=topic,
            partition=one.partition,
            offset=one.offset,
            timestamp_ms=one.timestamp,
            appended=one.appended,
            key=one.key,
            value=one.value,
            headers=list(one.headers),
        )
        for topic, one in found
    ]


def sample_of(file: Path) -> Iterator[SampleRecord]:
    """Yields the records of a file: one value a line, or what `repl read --json` and `repl try --json` print.

    Raises Failure.
    """
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise Failure(
            error(f"{file}: {problem.strerror or problem}", "name a file that can be read")
        ) from None
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("records"), list):
        for number, line in enumerate(content.splitlines()):
            if line.strip():
                yield SampleRecord(topic=file.name, offset=number, value=line)
        return
    for number, record in enumerate(document["records"]):
        try:
            yield _sample(record, str(document.get("topic", file.name)))
        except (AttributeError, KeyError, TypeError, NotBase64) as problem:
            raise Failure(
                error(
                    f"{file}: record {number} can't be read: {type(problem).__name__}: {problem}",
                    "give one value a line, or the output of repl read --json",
                )
            ) from None


def _sample(record: Any, topic: str) -> SampleRecord:
    timestamp_ms = record.get("timestamp_ms")
    return SampleRecord(
        topic=str(record.get("topic", topic)),
        partition=int(record.get("partition", 0)),
        offset=int(record.get("offset", 0)),
        timestamp_ms=-1 if timestamp_ms is None else int(timestamp_ms),
        appended=bool(record.get("appended", False)),
        key=_bytes(record.get("key")),
        value=_bytes(record["value"]),
        headers=[(str(one["name"]), _bytes(one["value"])) for one in record.get("headers", [])],
    )


def _bytes(written: Any) -> bytes | None:
    """Returns bytes as `repl read --json` writes them: `{"text": …}` or `{"base64": …}`; text alone too."""
    match written:
        case None:
            return None
        case str(text) | {"text": str(text)}:
            return text.encode()
        case {"base64": str(text)}:
            return b64decode(text, validate=True)
        case _:
            raise TypeError(f"{written!r} is no text and no base64")
