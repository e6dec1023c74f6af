"""`repl locate`: finds one record at the other side of a flow."""

import datetime
import re
from pathlib import Path
from typing import NamedTuple

import click

from planner.cli.options import json_option, timeout_option, topology_path, var_file_option
from planner.cli.output import emit
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
@click.option("--reverse", is_flag=True, help="The record is at the destination: find where it came from.")
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
    record at or after it. TOPIC is the name at the cluster where you know the record. For a flow into files,
    the file that holds the record is named.
    """
    from msgspec import to_builtins

    from planner.render.reports.locate import sentence
    from planner.workflows.audit.reading import LocateRecordRequest, locate_record

    wanted = parse_place(place)
    request = LocateRecordRequest(
        path,
        var_files,
        timeout,
        flow=flow,
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        timestamp_ms=wanted.timestamp_ms,
        reverse=reverse,
    )
    located = locate_record(request)
    if as_json:
        emit({"format_version": FORMAT_VERSION, **to_builtins(located)})
    else:
        click.echo(sentence(located))
    return ExitCode.DONE


def parse_place(text: str) -> RecordPosition:
    """Parses TOPIC:PARTITION:OFFSET or TOPIC:PARTITION@TIMESTAMP. Failure shows both forms."""
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
    """Parses a time. Without a zone it is UTC."""
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
