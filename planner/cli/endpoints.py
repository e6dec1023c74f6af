"""Clusters of a topology or a plan → how to reach them, secrets resolved here and now."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from planner.declare.secrets import resolve, token_command
from planner.kafka import Endpoint
from planner.model.diagnostic import Diagnostic, Failure
from planner.model.topology import Cluster

GIVEN_UP_S = 3.0  # a cluster that is to be given up is not waited for long


def endpoints_of(clusters: Iterable[Cluster], trusted: Sequence[Path] | None = None) -> dict[str, Endpoint]:
    """Failure names every secret that can't be had, of all clusters at once.

    `trusted` is for clusters that a plan file names: see `resolve`.
    """
    found: dict[str, Endpoint] = {}
    problems: list[Diagnostic] = []
    for cluster in clusters:
        try:
            found[cluster.name] = Endpoint(
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
