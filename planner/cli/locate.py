"""`repl locate`: where one record is on the other side."""

import datetime
import re
from pathlib import Path
from typing import NamedTuple

import click

from planner.cli import as_json as json_output
from planner.cli.known import flow_of
from planner.cli.options import json_option, timeout_option, topology_path, var_file_option
from planner.config import load
from planner.model.diagnostic import ExitCode, Failure, error

FORMAT_VERSION = 1
_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+)(?::(?P<offset>\d+)|@(?P<moment>.+))")


class RecordPosition(NamedTuple):
    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None


@click.command()
@click.argument("flow")
@click.argument("place", metavar="TOPIC:PARTITION:OFFSET|TOPIC:PARTITION@TIMESTAMP")
@click.option("--reverse", is_flag=True, help="The record is at the destination; where did it come from?")
@topology_path
@var_file_option
@timeout_option
@json_option
def command(
    flow: str,
    place: str,
    reverse: bool,
    path: Path,
    var_files: tuple[Path, ...],
    timeout: int,
    as_json: bool,
) -> int:
    """Show where one record of the source is at the destination of FLOW; with --reverse, the other way.

    The record is named by its offset, or with @ by a time (2026-01-31T08:00:00Z, or ms since 1970): the first
    record at or after it. TOPIC is the name at the cluster where you know the record.
    """
    from planner.cli.answers import answered
    from planner.cli.status_asking import reaches_of
    from planner.render.reports.locate import as_json as document
    from planner.render.reports.locate import as_text
    from runtime.audit.offsets.locate import LocateRequest, locate

    wanted = parse_place(place)
    topology = load(path, var_files)
    declared = flow_of(topology, flow)
    names = (declared.source_cluster, declared.destination_cluster)
    reaches = reaches_of(topology.clusters[name] for name in names)
    asked = LocateRequest(
        flow=flow,
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        timestamp_ms=wanted.timestamp_ms,
        reverse=reverse,
        source=reaches[names[0]],
        destination=reaches[names[1]],
        within_s=timeout / 1000,
    )
    located = answered(locate(asked))
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **document(located)})
    else:
        click.echo(as_text(located))
    return ExitCode.DONE


def parse_place(text: str) -> RecordPosition:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise Failure(
            error(
                f"{text!r} is no place of a record",
                "orders:0:42 is offset 42 of partition 0, "
                "orders:0@2026-01-31T08:00:00Z the first one since then",
            )
        )
    offset = int(found["offset"]) if found["offset"] is not None else None
    moment = _ms(found["moment"]) if found["moment"] is not None else None
    return RecordPosition(found["topic"], int(found["partition"]), offset, moment)


def _ms(text: str) -> int:
    """A time without a zone is UTC."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Failure(
            error(f"{text!r} is no time", "write 2026-01-31T08:00:00Z, or milliseconds since 1970")
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)
