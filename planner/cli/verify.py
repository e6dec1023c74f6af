"""`repl verify`: compares both sides of a flow record by record, on Spark."""

import re
from pathlib import Path
from typing import NamedTuple

import click

from planner.cli.options import (
    PatternParam,
    RateParam,
    json_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1
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


@click.command()
@click.argument("flow")
@click.option(
    "--topics",
    type=PatternParam(),
    metavar="RE",
    help="Only topics, or files, whose whole names at the source match.",
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
    help="Only this share, in random ranges of 1,000 offsets.",
)
@click.option("--rate", type=RateParam(), metavar="RATE", help="Read at most this much, for example 20MB/s.")
@click.option("--resume", is_flag=True, help="Continue where the same command was cut.")
@click.option(
    "--on-cluster",
    is_flag=True,
    help="Run on the Spark cluster of the flow's job, not on this machine.",
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

    Compares keys, values, headers, timestamps and order of everything that the flow has copied up to now and
    both sides still hold. A flow into files is compared with its files and their manifest, a flow from files
    with the lines or rows that were read. It only reads, and the flow may run. Exit code 2 where there is a
    difference.
    """
    from planner.cli.console import print_lines
    from planner.cli.view import TerminalView
    from planner.render.reports.verify import document, screen
    from planner.workflows.audit.comparison import VerifyFlowRequest, verify

    request = VerifyFlowRequest(
        path,
        var_files,
        timeout,
        flow=flow,
        topics=topics,
        low=bounds.low,
        high=bounds.high,
        last=bounds.last,
        sample=sample,
        rate=rate,
        resume=resume,
        on_cluster=on_cluster,
    )
    verified = verify(request, TerminalView(as_json=as_json))
    if as_json:
        emit({"format_version": FORMAT_VERSION, **document(verified)})
    else:
        print_lines(lambda width: screen(verified, width))
    if verified.different:
        return ExitCode.DIFFERENT
    return ExitCode.ERROR if verified.unread else ExitCode.DONE
