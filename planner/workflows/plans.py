"""Topology → plan: every workflow that plans goes through here.

`repl plan --untrusted` first checks a pull request before a machine with credentials plans it.
"""

import asyncio
import datetime
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from planner.config import LoadedTopology
from planner.graph.lints.security import CLEAR_TEXT, UNCHECKED
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, error, warning
from planner.model.observed import Observed
from planner.model.plan import Mode, Plan, PlanInputs, release
from planner.model.restore import RestoredBackup
from planner.model.step import ApplyRecord
from planner.model.topology import Topology
from planner.observe.broker_check import BROKER_OUTDATED, verify_on_broker
from planner.observe.cluster import ReadOptions
from planner.plan.guards import required_keys
from planner.plan.make import plan_from, warnings_of, with_diagnostics
from planner.plan.rollback import read_request_of
from planner.state.internal_topics import read_registry
from planner.workflows.audit.access import endpoints_of
from planner.workflows.audit.history import find, histories
from planner.workflows.audit.waves import shared_transactions
from planner.workflows.edge import Workflow
from planner.workflows.interaction import ProgressHandler, silent
from planner.workflows.observing import observe, read_clusters, read_waiting_partitions
from planner.workflows.one_off import check_transforms
from planner.workflows.preflight import check_allowed, missing_here
from planner.workflows.requests import PlanRequest, TopologyRequest
from planner.workflows.rules import check_rules, operator_rules, with_policy_verdicts
from planner.workflows.topology import load_and_lint
from runtime.contract.client.secrets import ALLOW_BOOTSTRAP, ALLOW_ENV, ALLOW_FILES, not_set

# Warnings of a trusted topology that are errors of an untrusted one: its author could read what is sent.
_REFUSED = frozenset({CLEAR_TEXT, UNCHECKED})
_ROLE = "sasl.aws.role.arn"
_WHAT = {
    ALLOW_ENV: "the environment variables that a topology may use, for example DC1_*",
    ALLOW_FILES: "the folders whose files it may use, for example /run/secrets",
    ALLOW_BOOTSTRAP: "the addresses it may connect to, for example *.example.org:9093",
}


def check_operator() -> None:
    """Failure names every list that the operator has not set: without one, everything would be allowed."""
    missing = not_set(os.environ)
    if missing:
        raise Failure(
            [
                error(
                    f"--untrusted needs {name} in the environment",
                    f"set it to {_WHAT[name]}",
                    code="untrusted",
                )
                for name in missing
            ]
        )


def check_options(path: Path, var_files: Iterable[Path], rollback: str | None) -> None:
    """Failure for options that would give the topology more than its own folder."""
    folder = (path if path.is_dir() else path.parent).resolve()
    for file in var_files:
        if not file.resolve().is_relative_to(folder):
            what = f"--untrusted takes no variables from {file}: the topology could show what stands in it"
            raise Failure(error(what, f"name a file below {folder}", code="untrusted"))
    if rollback is not None:
        raise Failure(
            error(
                "--untrusted does not go with --rollback",
                "plan a rollback from the topology that was merged",
                code="untrusted",
            )
        )


def check_roles(topology: Topology) -> None:
    """Failure for a topology that would choose which role of AWS the machine acts as."""
    refused = [cluster for cluster in topology.clusters.values() if _ROLE in cluster.client]
    if refused:
        what = f"--untrusted takes no {_ROLE}: the topology would choose as whom this machine logs in"
        hint = "give the machine the role itself: its own identity is used"
        raise Failure([error(what, hint, source=cluster.source, code="untrusted") for cluster in refused])


def refuse_untrusted(diagnostics: Sequence[Diagnostic]) -> None:
    """Failure where a topology has warnings that one of an untrusted author may not have."""
    strict = tuple(
        replace(diagnostic, severity=Severity.ERROR, exit=ExitCode.ERROR)
        if diagnostic.code in _REFUSED
        else diagnostic
        for diagnostic in diagnostics
    )
    if any(diagnostic.severity is Severity.ERROR for diagnostic in strict):
        raise Failure(strict)


# While brokers do not show yet what their controller knows, they are read again for this long.
OUTDATED_S = 60.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 4.0


@Workflow
async def validate(request: TopologyRequest) -> LoadedTopology:
    """Checks a topology without any cluster. Failure holds every error at once.

    Rules are compiled; Spark's analyzer checks transforms last.
    """
    loaded = load_and_lint(request)
    check_rules((*operator_rules(request.policies), *loaded.topology.policies.rules))
    await check_transforms(loaded.topology)
    return loaded


@Workflow
async def plan(request: PlanRequest, progress: ProgressHandler = silent) -> Plan:
    """Observes the clusters and returns the plan that makes them match the topology. It changes nothing.

    The plan's diagnostics hold guards, lints and warnings. Failure: the topology has errors, a secret is
    missing, or a cluster is not the pinned one. A cluster that does not answer is part of the plan.
    """
    if request.untrusted:
        check_operator()
        check_options(request.path, request.var_files, request.rollback)
    loaded = load_and_lint(request)
    if request.untrusted:
        check_roles(loaded.topology)
        refuse_untrusted(loaded.warnings)
    if request.rollback is not None:
        if request.targets:
            raise Failure(error("an apply is taken back as a whole", "leave out --target"))
        back = await rollback_plan(loaded.topology, request.rollback, request.timeout_s, progress)
        return with_policy_verdicts(back, request.policies)
    made = await plan_with_warnings(loaded, request.targets, request.timeout_s, progress)
    if not request.untrusted:  # its author would learn what this machine has
        made = with_diagnostics(made, missing_here(made, warning))
    return with_policy_verdicts(made, request.policies)


@Workflow
async def drift(request: TopologyRequest, progress: ProgressHandler = silent) -> Plan:
    """Returns what changed outside the topology since it was applied, as a plan without steps."""
    topology = load_and_lint(request).topology
    return plan_now(Mode.DRIFT, topology, await observe(topology, request.timeout_s, progress=progress))


async def plan_with_warnings(
    loaded: LoadedTopology, targets: tuple[str, ...], timeout_s: float, progress: ProgressHandler
) -> Plan:
    """Returns the plan of a topology, with warnings of partitions that wait for a decision."""
    plan = await observe_and_plan(loaded.topology, timeout_s, progress, targets=targets)
    plan = with_diagnostics(plan, loaded.warnings)
    if plan.errored:
        return plan
    waits = await read_waiting_partitions(plan, timeout_s, progress=progress, observed=True)
    shared = await shared_transactions(loaded.topology, timeout_s)
    return with_diagnostics(plan, [*warnings_of(waits), *shared])


async def observe_and_plan(
    topology: Topology,
    timeout_s: float,
    progress: ProgressHandler = silent,
    *,
    targets: tuple[str, ...] = (),
    adopt: tuple[str, ...] = (),
    given_up: str | None = None,
) -> Plan:
    """Reads the clusters and returns the plan, which the brokers have checked: their objections are errors.

    `adopt`: the plan only registers what is as declared at these clusters. Failure where this machine does
    not allow an object store, a schema registry or a cluster of the topology.
    """
    check_allowed(topology)

    async def attempt() -> Plan:
        observed = await observe(topology, timeout_s, given_up, progress)
        await check_transforms(topology, observed, progress)
        plan = plan_now(Mode.APPLY, topology, observed, targets=targets, adopt=adopt)
        return plan if plan.errored else await with_broker_refusals(plan, timeout_s)

    return await retry_while_outdated(attempt)


async def retry_while_outdated(attempt: Callable[[], Awaitable[Plan]], within_s: float = OUTDATED_S) -> Plan:
    """Plans, and again while the brokers do not show everything that their controller knows.

    This happens while topics of an apply that was killed are still being created.
    """
    plan = await attempt()
    deadline = time.monotonic() + within_s  # The first observation of many clusters may take as long.
    pause = _FIRST_PAUSE
    while True:
        outdated = any(problem.code == BROKER_OUTDATED for problem in plan.diagnostics)
        if not outdated or time.monotonic() + pause >= deadline:
            return plan
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        plan = await attempt()


async def with_broker_refusals(plan: Plan, timeout_s: float) -> Plan:
    """Returns the plan with the brokers' objections to its steps. Other steps need no client."""
    if not any(step.checked for step in plan.steps):
        return plan
    endpoints = endpoints_of(plan.connections.values())
    return with_diagnostics(plan, await verify_on_broker(plan.steps, endpoints, timeout_s))


async def rollback_plan(
    topology: Topology, apply_id: str, timeout_s: float, progress: ProgressHandler = silent
) -> Plan:
    """Returns the plan that takes back an apply. Failure: the id fits no apply, several, or another's."""
    check_allowed(topology)
    applied = find(await histories(topology.clusters, timeout_s, progress), apply_id)
    if applied.topology != topology.name:
        what = f"apply {applied.id} is of the topology {applied.topology!r}, not of {topology.name!r}"
        raise Failure(error(what, f"plan the rollback with the YAML of {applied.topology!r}"))
    wanted = read_request_of(applied, required_keys(topology.policies))
    options = ReadOptions(read_registry=read_registry, jobs_of=topology.name)
    observed = await read_clusters(topology.clusters, timeout_s, lambda _: wanted, progress, options)
    return plan_now(Mode.ROLLBACK, topology, observed, applied=applied)


def plan_now(
    mode: Mode,
    topology: Topology,
    observed: Observed,
    *,
    targets: tuple[str, ...] = (),
    adopt: tuple[str, ...] = (),
    applied: ApplyRecord | None = None,
    backup: RestoredBackup | None = None,
    diagnostics: tuple[Diagnostic, ...] = (),
) -> Plan:
    """Returns the plan of these inputs, which is made now, here, by this release."""
    inputs = PlanInputs(
        release=release(),
        mode=mode,
        topology=topology,
        observed=observed,
        created_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        folder=str(Path.cwd()),
        targets=targets,
        adopt=adopt,
        applied=applied,
        backup=backup,
        diagnostics=diagnostics,
    )
    return plan_from(inputs)
