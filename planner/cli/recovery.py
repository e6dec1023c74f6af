"""The commands of disaster recovery: a lost cluster, its return, and records that were left or backed up."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from msgspec.structs import replace

from planner.cli.command import ApprovedOutput, command, given
from planner.cli.plan_output import SavedPlanOutput, exit_code
from planner.model.diagnostic import ExitCode, Failure, error
from planner.workflows.new_files import new_file
from planner.workflows.options import Option
from planner.workflows.requests import (
    CutoverRequest,
    FailbackRequest,
    FailoverRequest,
    PromoteRequest,
    RestoreBackupRequest,
    SalvageRequest,
)

if TYPE_CHECKING:
    from planner.model.plan import ApplyResult
    from runtime.contract.results.records import SalvagedRecord


@command
def failover(
    request: FailoverRequest,
    output: ApprovedOutput,
    rehearse: Annotated[
        bool, Option("--rehearse", "Show the cost and how long it takes; change nothing.")
    ] = False,
) -> int:
    """Fail over from the lost CLUSTER: end its flows, and move their consumer groups to the destinations.

    Shows what is lost and the plan, asks, and applies. Writes state: failed_over into the topology.
    CLUSTER need not answer, and is waited for 3 s at most. Run it again after an interruption: it
    finishes the rest. Consumers at a destination need isolation.level=read_committed.
    """
    from planner.workflows.flows.failover import failover, rehearse_failover

    if not rehearse:
        return _show_end(failover(request, output.interaction()), output)
    from planner.cli.view import print_rehearsal
    from planner.render.reports.loss import duration_line

    rehearsal = rehearse_failover(request, output.progress())
    print_rehearsal(rehearsal, as_json=output.as_json, end=duration_line(rehearsal.jobs))
    return ExitCode.DONE


def _show_end(result: "ApplyResult", output: ApprovedOutput) -> int:
    """Shows what consumers subscribe to once flows have ended; returns the exit code."""
    from planner.cli.view import print_subscriptions

    print_subscriptions(result.subscriptions, as_json=output.as_json)
    return result.exit_code


@command
def failback(
    request: FailbackRequest,
    output: ApprovedOutput,
    switch: Annotated[
        bool,
        Option("--switch", "All records are copied back: make the original flows active again."),
    ] = False,
) -> int:
    """Copy back to CLUSTER what was written at the destinations since its flows were promoted or failed over.

    Adds a reverse flow (NAME-back) for each such flow to the topology, plans, asks, applies, and waits
    until all records are copied back that the destinations hold then. Producers may go on writing there.
    Then stop them and run it again with --switch: the reverse flows are promoted, consumer groups move to
    CLUSTER, and the original flows are active again. Run it again after an interruption.
    """
    from planner.workflows.flows.failover import failback, switch_back

    if not switch:
        return failback(request, output.interaction()).exit_code
    result = switch_back(request, output.interaction())
    code = _show_end(result, output)
    if result.complete:
        click.echo(f"Next: start the consumers at {request.cluster}, then the producers", err=True)
    return code


@command
def promote(
    request: PromoteRequest,
    output: ApprovedOutput,
    rehearse: Annotated[
        bool, Option("--rehearse", "Show what is left to copy and which groups move; change nothing.")
    ] = False,
) -> int:
    """Promote FLOW: copy the rest, move its consumer groups, stop copying, and make the destination writable.

    Stop the producers at the source first. Waits until the lag is 0, then writes state: promoted into the
    topology, plans, asks and applies; the job itself copies what came in meanwhile before it ends the flow.
    Exit code 1 where records are left at the timeout: the flow goes on copying. Last it prints which topics
    the consumers of each group subscribe to at the destination. With --topics it is the topics whose whole
    names match RE at the source, and they are written under promoted.

    Before it asks, it names the groups that are not moved, and why; with --rehearse it shows all groups.
    """
    from planner.workflows.flows.states import promote, rehearse_promote

    if not rehearse:
        return _show_end(promote(request, output.interaction()), output)
    from planner.cli.view import print_rehearsal

    rehearsal = rehearse_promote(request)
    (left,) = rehearsal.left
    begin = f"flow.{left.flow}: {left.text or 'everything is copied'}"
    print_rehearsal(rehearsal, as_json=output.as_json, begin=begin)
    return ExitCode.DONE


@command
def cutover(request: CutoverRequest, output: ApprovedOutput) -> int:
    """Move a wave of the cutover NAME: its topics, its producers and its consumer groups.

    Waits for the gate of the wave, shows the plan, asks, stops the producers at the source, waits until the
    last record is copied, promotes the topics and moves the groups. Run it again after an interruption: it
    continues. Without --wave it moves the first wave that is left. Exit code 1 where the gate is not reached,
    or records are left at the timeout.

    --back takes back a wave that has not moved yet. Of a wave that has moved it copies back what is new, as
    repl failback does: it needs flows of its own. Then stop its producers at the destination and run it again
    with --back --switch: its flows copy as before, and its groups move back to the exact record.
    """
    from planner.cli.console import print_lines
    from planner.cli.view import emit_each, print_subscriptions
    from planner.render.reports.cutovers import wave_lines
    from planner.workflows.flows.cutover import cutover

    result = cutover(request, output.interaction())
    print_subscriptions(result.subscriptions, as_json=output.as_json)
    if output.as_json:
        emit_each("wave", [result.wave])
    else:
        print_lines(lambda _: wave_lines([result.wave]))
    back = f"repl cutover {request.cutover} --wave {result.wave.wave} --back"
    if result.exit_code is ExitCode.DONE and request.switch:
        click.echo("Next: start its consumers at the source, then its producers", err=True)
    elif result.switch_follows:
        click.echo(f"Next: stop its producers at the destination, then {back} --switch", err=True)
    return result.exit_code


@command
def salvage(
    request: SalvageRequest,
    output: ApprovedOutput,
    export: Annotated[
        Path | None,
        Option("--export", "Write every record as a line of JSON into a new file.", "FILE", path="file"),
    ] = None,
    replay: Annotated[
        bool, Option("--replay", "Copy them into the flow's own topics at the destination.")
    ] = False,
) -> int:
    """Show the records of FLOW's source that never reached its destination, or copy them there.

    These are the committed records that the flow did not copy, or that were given up, and that provenance did
    not filter. Without --replay it only reads. With --replay each of them is copied exactly once; its header
    __repl names its origin.
    """
    if request.to is not None and not replay:
        raise click.UsageError("--to goes with --replay")
    if replay and export is not None:
        raise click.UsageError("--export and --replay are two commands")
    if not replay:
        return _salvage(request, output, export)
    from planner.render.reports.salvage import replay_document, replay_screen
    from planner.workflows.audit.comparison import replay_salvage

    result = replay_salvage(request, output.interaction())
    if output.as_json or result.parts:
        output.show(
            lambda: replay_document(result.salvaged, request.to, result.parts),
            lambda width: replay_screen(result.parts, width),
        )
    return ExitCode.DONE if result.complete else ExitCode.ERROR


def _salvage(request: SalvageRequest, output: ApprovedOutput, export: Path | None) -> int:
    from planner.render.reports.salvage import document, line, screen
    from planner.workflows.audit.comparison import salvage

    file = nullcontext(None) if export is None else new_file(export)
    with file as write:

        def take(record: "SalvagedRecord") -> None:
            if write is not None:
                write(line(record))

        seen = salvage(request, take, output.progress())
        if seen.unread and export is not None:
            why = next(
                f"{partition.topic}-{partition.partition}: {partition.unread}"
                for partition in seen.partitions
                if partition.unread
            )
            raise Failure(
                error(f"{export} was not written: {why}", "without --export, what was read is shown")
            )
    output.show(lambda: document(seen), lambda width: screen(seen, width))
    if export is not None:
        click.echo(f"{seen.records:,} records written to {export}", err=True)
    return ExitCode.DONE if seen.complete else ExitCode.ERROR


@command
def restore(
    request: RestoreBackupRequest,
    output: ApprovedOutput,
    shown: SavedPlanOutput,
    prefix: Annotated[str | None, Option("--prefix", "Put P before the name of each topic.", "P")] = None,
) -> int:
    """Restore the backup at ENDPOINT: topics, records and the offsets of consumer groups.

    Shows the plan, asks, and applies it; every record is compared with the backup in the end. With --out,
    --markdown or --html it writes the plan and changes nothing. Run it again after an interruption: it
    continues where it was. The folder of the endpoint must be mounted here, or its object store reachable.

    Exit code: 0 done, 1 an error, 3 refused, for example because a topic exists and holds records.
    """
    from planner.workflows.flows.restoring import plan_restore, restore

    if prefix is not None:
        if given("rename"):
            raise click.UsageError("--prefix and --rename both name the topics: give one of them")
        request = replace(request, rename=f"{prefix}{{topic}}")
    elif request.rename.count("{topic}") != 1:
        raise click.UsageError("--rename holds {topic} once, such as {topic}.restored")
    if shown.out is None and shown.markdown is None and shown.html is None:
        return restore(request, output.interaction()).exit_code
    return exit_code(shown.show_plan(lambda: plan_restore(request, output.progress()), save=shown.save))
