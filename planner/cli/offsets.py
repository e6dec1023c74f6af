"""`repl offsets`: where a group stands at both sides of a flow."""

from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.known import flow_of
from planner.cli.options import json_option, timeout_option, topology_path, var_file_option
from planner.config import load
from planner.model.diagnostic import ExitCode
from planner.model.topology import GroupMode

FORMAT_VERSION = 1


@click.command()
@click.argument("flow")
@click.argument("group")
@topology_path
@var_file_option
@timeout_option
@json_option
def command(
    flow: str, group: str, path: Path, var_files: tuple[Path, ...], timeout: int, as_json: bool
) -> int:
    """Show a group's offsets at the source and what they are at the destination, per partition.

    They are translated now, from the ledger: right also when no job runs. Where the source does not answer,
    its side is what the job's checkpoints last told.
    """
    from planner.cli.answers import answered
    from planner.cli.printing import print_lines
    from planner.cli.status_asking import reaches_of
    from planner.graph.routes import reason_not_synced, router_of
    from planner.render.reports.offsets import as_json as document
    from planner.render.reports.offsets import screen
    from runtime.audit.offsets.offsets import GroupOffsetsRequest, group_offsets

    topology = load(path, var_files)
    declared = flow_of(topology, flow)
    names = (declared.source_cluster, declared.destination_cluster)
    reaches = reaches_of(topology.clusters[name] for name in names)
    asked = GroupOffsetsRequest(
        flow=flow,
        group=group,
        unsynced=reason_not_synced(declared, group),
        by_time=declared.groups.mode is GroupMode.TIMESTAMP,
        router=router_of(topology),
        source=reaches[names[0]],
        destination=reaches[names[1]],
        within_s=timeout / 1000,
    )
    seen = answered(group_offsets(asked))
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **document(seen)})
    else:
        print_lines(lambda width: screen(seen, width))
    return ExitCode.DONE
