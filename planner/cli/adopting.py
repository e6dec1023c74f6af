"""`repl import --adopt`: what a topology declares and the clusters hold alike becomes its own."""

from collections.abc import Sequence
from pathlib import Path

from planner.cli.apply import execute
from planner.cli.apply_view import ApplyView
from planner.cli.pipeline import apply_plan, see
from planner.cli.plan_output import print_plan
from planner.cli.validate import checked
from planner.config.hints import did_you_mean
from planner.model.diagnostic import Failure, error
from planner.plan.make import adoption


def adopt(
    path: Path,
    var_files: tuple[Path, ...],
    clusters: Sequence[str],
    *,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    loaded = checked(path, var_files)
    for name in clusters:
        if name not in loaded.topology.clusters:
            known = ", ".join(loaded.topology.clusters)
            way_out = did_you_mean(name, loaded.topology.clusters) or f"it has {known}"
            raise Failure(error(f"the topology has no cluster {name!r}", way_out))
    plan = adoption(apply_plan(see(loaded.topology, timeout)), clusters)
    if not as_json:
        print_plan(plan)
    return execute(
        plan,
        path,
        auto_approve=auto_approve,
        lock_timeout=lock_timeout,
        timeout=timeout,
        view=ApplyView(as_json=as_json),
    )
