"""What is checked on this machine before anything is read or changed: what it allows, and what it has.

The addresses, variables and files of object stores and schema registries are checked as those of clusters
are, also in the steps of a saved plan. A machine that launches a job needs its extras and folders.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

from planner.graph.jobs import client_settings, registries_of, registry_specs
from planner.model.address import flow_address, job_address
from planner.model.diagnostic import Diagnostic, Failure, SourceLocation, error, folder_of
from planner.model.plan import Plan
from planner.model.topology import Flow, Topology
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob
from planner.plan.steps.restores import RestoreRecords
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.client.stores import is_store
from runtime.contract.extras import Extra, is_missing, missing_extra
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec, JobSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.launch.launcher import checks_of


def check_allowed(topology: Topology) -> None:
    """Checks how a topology reaches its object stores and the schema registries of its transforms.

    Addresses, variables and files must be among those that this machine allows, as those of clusters. Failure
    names all that are not.
    """
    problems: list[Diagnostic] = []
    for name, endpoint in sorted(topology.endpoints.items()):
        if not endpoint.in_store:
            continue
        secrets = ClientSecrets(os.environ, (Path(folder_of(endpoint.source)),))
        client = client_settings(endpoint, Path.cwd())
        try:
            secrets.check_store(endpoint.folder, client)
        except ClientSettingsError as wrong:
            problems.append(_not_allowed(f"endpoint {name}", wrong, endpoint.source))
    problems += [problem for flow in topology.job_flows.values() for problem in _registry_problems(flow)]
    if problems:
        raise Failure(problems)


def check_registries(flow: Flow) -> None:
    """Checks how the registries of a flow's transform are reached. Failure names all that are not allowed."""
    if problems := list(_registry_problems(flow)):
        raise Failure(problems)


def _registry_problems(flow: Flow) -> Iterator[Diagnostic]:
    secrets = ClientSecrets(os.environ, ())
    for registry in flow.transform.registries if flow.transform is not None else ():
        try:
            secrets.check_registry(registry.url, registry.client)
        except ClientSettingsError as wrong:
            yield _not_allowed(f"the schema registry of flow.{flow.name}", wrong, flow.source)


def schema_registries(
    topology: Topology, folder: PurePath, trusted: Sequence[Path] | None = None, restored: str = ""
) -> dict[str, RegistrySpec]:
    """Returns how the schema registries that flows need are reached, by cluster.

    That of a cluster into which a backup is `restored` comes with them. Relative paths start at `folder`.
    Addresses, variables and files must be among those that this machine allows: Failure names all that are
    not. `trusted` are the folders whose files a saved plan may refer to.
    """
    problems: list[Diagnostic] = []
    registries = registries_of(topology, topology.job_flows.values(), folder)
    registries |= registry_specs(topology, (restored,), folder)
    for name, registry in registries.items():
        declared = topology.registries[name]
        declared_folder = Path(folder / folder_of(declared.source))
        secrets = ClientSecrets(os.environ, (declared_folder,) if trusted is None else trusted)
        try:
            secrets.check_registry(registry.url, registry.client)
        except ClientSettingsError as wrong:
            problems.append(_not_allowed(f"the schema registry of {name}", wrong, declared.source))
    if problems:
        raise Failure(problems)
    return registries


def _not_allowed(of: str, wrong: ClientSettingsError, source: SourceLocation | None) -> Diagnostic:
    return error(f'"{wrong.key}" of {of}: {wrong.why}', wrong.hint, source=source, code="secret")


def missing_here(plan: Plan, severity: Callable[..., Diagnostic]) -> tuple[Diagnostic, ...]:
    """Returns a diagnostic for each extra and each folder that this machine lacks for a job of the plan.

    The driver of a job runs on the machine that launches it, except on Kubernetes. A job that runs already
    says by itself what it lacks. A folder is not made: where it is missing, a mount is often missing, and
    files would be written below the mount point.
    """
    extras: dict[Extra, str] = {}
    folders: dict[str, tuple[str, str]] = {}
    for spec in _launched_here(plan):
        active = [(flow, flow.folder) for flow in spec.flows if flow.state == "active"]
        if is_missing(Extra.SPARK):
            extras.setdefault(Extra.SPARK, spec.job)
        if any(folder and is_store(folder) for _, folder in active) and is_missing(Extra.FILES):
            extras.setdefault(Extra.FILES, spec.job)
        for flow, folder in active:
            if folder is not None and not is_store(folder) and not Path(folder).is_dir():
                folders.setdefault(folder, (flow.name, spec.job))
    return (
        *(
            severity(
                *missing_extra(extra, "this machine, which would launch the job,"),
                address=str(job_address(job)),
                code="extra",
            )
            for extra, job in extras.items()
        ),
        *(
            severity(
                f"the folder {folder} is not there on this machine, which would launch job.{job}",
                f"make it (mkdir -p {shlex.quote(folder)}) or mount it, on every machine of the job:"
                " repl does not make it, because a mount may be missing",
                address=str(flow_address(flow)),
                code="folder",
            )
            for folder, (flow, job) in sorted(folders.items())
        ),
    )


def _launched_here(plan: Plan) -> Iterator[JobSpec]:
    """Yields the jobs that this machine would launch."""
    for step in plan.steps:
        if isinstance(step, LaunchJob) and step.spec.launch.launcher != "kubernetes":
            yield step.spec


def check_jobs(plan: Plan, trusted: Sequence[Path]) -> None:
    """Checks which clusters, stores and registries the steps of a saved plan reach: the same limits hold.

    `trusted` are the folders whose files they may refer to where REPL_ALLOW_FILES is not set.
    """
    secrets = ClientSecrets(os.environ, trusted)
    problems: list[Diagnostic] = []
    for step in plan.steps:
        try:
            if isinstance(step, RestoreRecords) and is_store(step.backup.folder):
                secrets.check_store(step.backup.folder, step.backup.client)
            if not isinstance(step, LaunchJob | ReconfigureJob):
                continue
            jobspec.check(step.spec)
            for _, check in checks_of(step.spec, secrets):
                check()
        except (ClientSettingsError, BadJobSpec) as wrong:
            problems.append(error(str(wrong), address=str(step.address), code="secret"))
    if problems:
        raise Failure(problems)
