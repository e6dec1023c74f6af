"""Clusters of a topology or a plan → how to reach them, with their secrets resolved."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from planner.config.secrets import resolve, token_command
from planner.kafka import ClusterEndpoint
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.plan import Plan
from planner.model.step import LaunchJob, ReconfigureJob
from planner.model.topology import Cluster
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec

GIVEN_UP_S = 3.0  # how long a cluster is waited for that a failover abandons


def endpoints_of(
    clusters: Iterable[Cluster], trusted: Sequence[Path] | None = None
) -> dict[str, ClusterEndpoint]:
    """Returns how each cluster is reached. Failure names every secret that is missing, of all clusters.

    `trusted` is for clusters that a plan file names: see `resolve`.
    """
    found: dict[str, ClusterEndpoint] = {}
    problems: list[Diagnostic] = []
    for cluster in clusters:
        try:
            found[cluster.name] = ClusterEndpoint(
                cluster.name,
                cluster.bootstrap,
                resolve(cluster, trusted=trusted),
                token_command(cluster),
            )
        except Failure as failure:
            problems += failure.diagnostics
    if problems:
        raise Failure(problems)
    return found


def check_jobs(plan: Plan, trusted: Sequence[Path]) -> None:
    """Checks the clusters in the job specs of a saved plan: the same limits hold for them.

    `trusted` are the folders whose files they may refer to where REPL_ALLOW_FILES is not set.
    """
    secrets = ClientSecrets(os.environ, trusted)
    problems: list[Diagnostic] = []
    for step in plan.steps:
        if not isinstance(step, LaunchJob | ReconfigureJob):
            continue
        try:
            for cluster in jobspec.decode(step.spec).clusters.values():
                secrets.check_all(cluster.bootstrap, cluster.client)
        except (ClientSettingsError, BadJobSpec) as wrong:
            problems.append(error(str(wrong), address=str(step.address), code="secret"))
    if problems:
        raise Failure(problems)
