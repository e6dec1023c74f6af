"""`repl verify`: both sides of a flow, record by record, on Spark."""

import re
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from planner.cli import as_json as json_output
from planner.cli.flow_specs import job_spec
from planner.cli.known import flow_of
from planner.cli.options import json_option, timeout_option, topology_path, var_file_option
from planner.cli.spark_once import on_spark
from planner.cli.verify_book import book_of
from planner.config import load
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import ENDED
from runtime.audit.verify.request import VerificationOutcome, VerifyRequest
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.regex import UnreadableRegex, regex

FORMAT_VERSION = 1
_TASKS = 2  # on a cluster, of a job whose slots are as many as there are cores
_RANGE = re.compile(r"(?P<low>\d*):(?P<high>\d*)|last:(?P<last>\d+)")


class OffsetBounds(NamedTuple):
    low: int | None = None
    high: int | None = None
    last: int | None = None


class RangeParam(click.ParamType[OffsetBounds]):
    """`FROM:TO`, either may be left out, or `last:N`."""

    name = "range"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> OffsetBounds:
        if isinstance(value, OffsetBounds):
            return value
        found = _RANGE.fullmatch(str(value))
        low, high, last = (int(one) if one else None for one in found.groups()) if found else (None,) * 3
        if found is None or (low is not None and high is not None and low >= high):
            self.fail(f'"{value}" is none of FROM:TO, FROM:, :TO, last:N', param, ctx)
        return OffsetBounds(low, high, last)


class PercentParam(click.ParamType[float]):
    """`5%`; the sign may be left out."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = float(str(value).removesuffix("%"))
        except ValueError:
            share = 0.0
        if not 0 < share <= 100:
            self.fail(f'"{value}" is no share: write it as 5%', param, ctx)
        return share


class RateParam(click.ParamType[int]):
    """`20MB/s` → bytes a second, as in a topology."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from planner.config.language.scalars import NotReadable, rate

        try:
            return rate(str(value))
        except NotReadable as wrong:
            self.fail(f'"{value}" is no rate: {wrong.mend}', param, ctx)


class PatternParam(click.ParamType[str]):
    name = "regex"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return regex(str(value)).pattern
        except UnreadableRegex as wrong:
            self.fail(f'"{value}" is no regular expression that is read here: it {wrong}', param, ctx)


@click.command()
@click.argument("flow")
@click.option(
    "--topics", type=PatternParam(), metavar="RE", help="Only topics of the source with such a name."
)
@click.option(
    "--range",
    "bounds",
    type=RangeParam(),
    default=OffsetBounds(),
    metavar="FROM:TO|last:N",
    help="Only these source offsets of each partition, TO not included; or the last N.  [default: all]",
)
@click.option(
    "--sample",
    type=PercentParam(),
    default="100%",
    show_default=True,
    metavar="P%",
    help="Only such a share, in random stretches of 1,000 offsets.",
)
@click.option("--rate", type=RateParam(), metavar="RATE", help="Read at most so much, for example 20MB/s.")
@click.option("--resume", is_flag=True, help="Go on where the same command was cut.")
@click.option(
    "--on-cluster",
    is_flag=True,
    help="On the cluster of Spark where the flow's job runs, not on this machine.",
)
@topology_path
@var_file_option
@timeout_option
@json_option
def command(
    flow: str,
    topics: str | None,
    bounds: OffsetBounds,
    sample: float,
    rate: int | None,
    resume: bool,
    on_cluster: bool,
    path: Path,
    var_files: tuple[Path, ...],
    timeout: int,
    as_json: bool,
) -> int:
    """Compare both sides of FLOW record by record, on Spark.

    Keys, values, headers, timestamps and order of everything that the flow has copied up to now and both
    sides still hold. It only reads, and the flow may run. Ends with 2 where there is a difference.
    """
    from planner.cli.printing import print_lines
    from planner.graph.routes import opposite_of
    from planner.render.reports.verify import as_json as document
    from planner.render.reports.verify import screen

    topology = load(path, var_files)
    declared = flow_of(topology, flow)
    job = job_spec(topology, declared, timeout)
    opposite = opposite_of(declared, topology)
    request = VerifyRequest(
        flow=job.flow(flow),
        source=job.clusters[declared.source_cluster],
        destination=job.clusters[declared.destination_cluster],
        topics=topics,
        low=bounds.low,
        high=bounds.high,
        last=bounds.last,
        sample=sample,
        rate=rate,
        tail=declared.state not in ENDED,  # else others write at the destination, rightly
        within_s=timeout / 1000,
        opposite=opposite.name if opposite is not None else None,
    )
    with book_of(request, path, resume=resume) as book:
        outcome = _run(request, book, resume=resume, where=_on_its_cluster(job) if on_cluster else None)
    verified = outcome.verified
    if verified is None:
        raise Failure(error(f"{outcome.cluster}: {outcome.why}", outcome.way_out))
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **document(verified)})
    else:
        print_lines(lambda width: screen(verified, width))
    if verified.different:
        return ExitCode.DIFFERENT
    return ExitCode.ERROR if verified.unread else ExitCode.DONE


def _on_its_cluster(job: JobSpec) -> JobSpec:
    """As many tasks at once as the job has slots, so that a rate can be shared out."""
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


def _run(
    request: VerifyRequest, book: Path | None, *, resume: bool, where: JobSpec | None
) -> VerificationOutcome:
    from runtime import audit
    from runtime.audit.verify.request import decode_outcome, encode_request

    words = ["--book", str(book)] if book is not None else []
    words += ["--resume"] if resume else []
    main = Path(audit.__file__).parent / "verify" / "main.py"
    return decode_outcome(on_spark(main, encode_request(request), "verify: ", words, where))
