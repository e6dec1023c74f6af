"""The commands that compare and show what clusters hold, and change nothing."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import to_builtins
from msgspec.json import encode

from planner.cli.command import CommandWithWords, Output, command
from planner.cli.output import say
from planner.model.diagnostic import ExitCode
from planner.workflows.new_files import new_file
from planner.workflows.options import DURATION, MOMENT, Option, TextFormat
from planner.workflows.requests import (
    ClusterRequest,
    LocateRecordRequest,
    OffsetsRequest,
    TranslateOffsetsRequest,
    TryFlowRequest,
    VerifyFlowRequest,
)

if TYPE_CHECKING:
    from runtime.contract.results.groups import UntranslatedOffset
    from runtime.contract.spec.flow import AtTimestamp, Earliest, Latest

Full = Annotated[bool, Option("--full", "Show long values in full.")]


@command
def verify(request: VerifyFlowRequest, output: Output) -> int:
    """Compare both sides of FLOW record by record, on Spark.

    Compares keys, values, headers, timestamps and order of everything that the flow has copied up to now and
    both sides still hold. A flow into files is compared with its files and their manifest, a flow from files
    with the lines or rows that were read. It only reads, and the flow may run. Exit code 2 where there is a
    difference.
    """
    from planner.render.reports.verify import document, screen
    from planner.workflows.audit.comparison import verify

    verified = verify(request, output.progress())
    output.show(lambda: document(verified), lambda width: screen(verified, width))
    if verified.different:
        return ExitCode.DIFFERENT
    return ExitCode.ERROR if verified.unread else ExitCode.DONE


def start(text: str) -> "Earliest | Latest | AtTimestamp | tuple[int, int]":
    """Returns where to read from: earliest, latest, PARTITION:OFFSET, or a time as in a topology."""
    from runtime.contract.spec.flow import AtTimestamp, Earliest, Latest

    partition, colon, offset = text.partition(":")
    if text in ("earliest", "latest"):
        return Earliest() if text == "earliest" else Latest()
    if colon and partition.isdecimal() and offset.isdecimal():
        return int(partition), int(offset)
    try:
        return AtTimestamp(MOMENT.read(text))
    except ValueError:
        raise ValueError("is none of earliest, latest, PARTITION:OFFSET, 2026-01-31T12:00:00Z") from None


@command
def read(
    request: ClusterRequest,
    output: Output,
    limit: Annotated[int, Option("--limit", "At most this many records.", "N", least=1, most=100_000)] = 10,
    start: Annotated[
        Any,  # a Start: its classes are loaded with the workflow
        Option(
            "--from",
            "latest: the last N. Or the first N from earliest, PARTITION:OFFSET, or a time on.",
            "WHERE",
            kind=TextFormat("from", start),
        ),
    ] = "latest",
    full: Full = False,
    export: Annotated[
        Path | None,
        Option(
            "--export",
            "Write the records into a new file, each as a line of JSON: a sample for repl drill and try.",
            "FILE",
            path="file",
        ),
    ] = None,
) -> int:
    """Show what CLUSTER holds and how far each flow has copied into it, or committed records of TOPIC.

    Each record is shown with its provenance. CLUSTER is a name of the topology. With --export, records are
    written to a file and not shown.
    """
    from planner.render.reports import records as rendered
    from planner.workflows.audit.reading import cluster_content, records

    if export is not None and output.as_json:
        raise click.UsageError("--export writes JSON into a file: leave --json out")
    if request.topic is None:
        if export is not None:
            raise click.UsageError("--export goes with a topic: repl read CLUSTER TOPIC --export FILE")
        content = cluster_content(request)
        output.show(lambda: to_builtins(content), lambda width: rendered.cluster_screen(content, width))
    elif export is not None:
        with new_file(export) as write:
            seen = records(request, start, limit)
            for line in rendered.export_lines(seen):
                write(line)
        what = f"{len(seen.records):,} records of {request.topic} at {request.cluster}"
        say(f"{what} written to {export}", err=True)
        for note in seen.notes:
            say(note, err=True)
    else:
        seen = records(request, start, limit)
        output.show(lambda: rendered.document(seen), lambda _: rendered.screen(seen, full=full))
    return ExitCode.DONE


@partial(command, name="offsets")
def group_offsets(request: OffsetsRequest, output: Output) -> int:
    """Show a consumer group's offsets at the source and at the destination, per partition.

    They are translated now, from the ledger: right also when no job runs. Where the source does not answer,
    its side is what the job's last checkpoints say. repl offsets translate FLOW FILE translates offsets that
    are stored outside of Kafka; a flow with the name translate is meant where no FILE follows.
    """
    from planner.render.reports.offsets import screen
    from planner.workflows.audit.reading import offsets

    seen = offsets(request)
    output.show(lambda: to_builtins(seen), lambda width: screen(seen, width))
    return ExitCode.DONE


@partial(command, name="translate")
def translate_offsets(
    request: TranslateOffsetsRequest,
    output: Output,
    into: Annotated[
        Path | None,
        Option("-o/--output", "Write there, not to stdout. A checkpoint needs it: a new folder.", "FILE"),
    ] = None,
    untranslated: Annotated[
        Path | None,
        Option(
            "--untranslated",
            "Write each offset without an exact counterpart, and why, into a new file: JSON lines.",
            "FILE",
        ),
    ] = None,
) -> int:
    """Translate the stored offsets in FILE to the other side of FLOW, exactly, by the flow's offset map.

    FILE is CSV (with a header that names topic, partition and offset, or as kafka-consumer-groups.sh --export
    writes it), JSON (objects with topic, partition and offset, in a list or a line each), Kafka Connect's
    answer to GET /connectors/NAME/offsets or lines of its offsets topic (key, tab, value), Flink's
    KafkaPartitionSplit as text, or the folder of a Spark Structured Streaming checkpoint. Its form is known
    by its content, and is that of the output. Topics get the names of the other side.

    An offset is that of the next record to read, in Connect's MirrorSourceConnector that of the last record
    that was copied. Offsets without an exact counterpart are left out, counted by reason, and the exit code
    is 1. A checkpoint is written only where all of its offsets have one.
    """
    from planner.config.spark_checkpoint import is_checkpoint
    from planner.render.reports.offsets import translation_lines
    from planner.workflows.audit import stored_offsets

    checkpoint = is_checkpoint(request.file)
    if into is None and (checkpoint or output.as_json):
        what = "a checkpoint" if checkpoint else "--json"
        raise click.UsageError(f"{what} goes with -o: the translated offsets are written there")
    with ExitStack() as files:
        list_line = files.enter_context(new_file(untranslated)) if untranslated is not None else None

        def pass_on(offset: "UntranslatedOffset") -> None:
            if list_line is not None:
                list_line(f"{encode(offset).decode()}\n")

        if checkpoint:
            assert into is not None, "it was demanded"
            result = stored_offsets.translate_checkpoint(request, into, pass_on)
        else:
            write = files.enter_context(new_file(into)) if into is not None else partial(click.echo, nl=False)
            result = stored_offsets.translate_offsets(request, write, pass_on)
    if output.as_json:
        output.emit(to_builtins(result))
    else:
        for line in translation_lines(result):
            say(line, err=True)
    return ExitCode.ERROR if result.untranslated else ExitCode.DONE


offsets = CommandWithWords(group_offsets, translate_offsets)


@command
def locate(request: LocateRecordRequest, output: Output) -> int:
    """Show where one record of the source is at the destination of FLOW; with --reverse, the other way.

    The record is named by its offset, or with @ by a time (2026-01-31T08:00:00Z, or ms since 1970): the first
    record at or after it. TOPIC is the name at the cluster where you know the record. For a flow into files,
    the file that holds the record is named.
    """
    from planner.render.reports.locate import sentence
    from planner.workflows.audit.reading import locate_record

    located = locate_record(request)
    if output.as_json:
        output.emit(to_builtins(located))
    else:
        click.echo(sentence(located))
    return ExitCode.DONE


@command
def clients(
    request: ClusterRequest,
    output: Output,
    over: Annotated[
        int,
        Option(
            "--over",
            "Read twice, this far apart, to show how fast groups consume; longer than their commit interval.",
            "DURATION",
            kind=DURATION,
        ),
    ] = 0,
) -> int:
    """Show which groups consume from each topic of CLUSTER, and which producers write to it.

    Groups with members, client ids, hosts and lag; producers as the brokers remember them. CLUSTER is a name
    of the topology.
    """
    from planner.render.reports.clients import document, screen
    from planner.workflows.audit.reading import clients

    seen = clients(request, over)
    output.show(lambda: document(seen), lambda width: screen(seen, width))
    return ExitCode.DONE


@command
def try_(request: TryFlowRequest, output: Output, full: Full = False) -> int:
    """Show what the transform of FLOW makes of records of its source; nothing is written.

    Shows each record before and after, which ones do not travel, and which ones are bad and why. Spark
    evaluates the transform on this machine, as the flow's job would. Exit code 2 where a record is bad.

    The output has RAW VALUES of the source, also of fields that the transform hides: run it where they may be
    seen, and keep the output there.
    """
    from planner.render.reports.trial import document, screen
    from planner.workflows.one_off import try_transform

    report = try_transform(request, output.progress())
    output.show(lambda: document(report), lambda _: screen(report, full=full))
    return ExitCode.DIFFERENT if any(result.bad for result in report.results) else ExitCode.DONE


@partial(command, without=("topic",))
def doctor(request: ClusterRequest, output: Output) -> int:
    """Show what CLUSTER can do for flows: versions, features, rights, clock and round trip.

    Every broker is asked, and nothing is changed. The exit code is 1 where no flow can copy from the cluster
    or to it. CLUSTER is a name of the topology.
    """
    from planner.render.reports import doctor as rendered
    from planner.workflows.audit.reading import doctor

    report = doctor(request)
    output.show(lambda: rendered.as_json(report), lambda width: rendered.screen(report, width))
    return ExitCode.DONE if report.can_be_source or report.can_be_destination else ExitCode.ERROR
