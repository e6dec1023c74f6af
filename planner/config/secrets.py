"""Resolves secrets, only where a connection is opened, and passes them to its client alone."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from planner.config.language.scalars import PlacedReference
from planner.model.diagnostic import Diagnostic, Failure, error, folder_of
from planner.model.topology import Cluster
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.client.stores import Setting


def resolve(
    cluster: Cluster,
    environment: Mapping[str, str] | None = None,
    trusted: Iterable[Path] | None = None,
) -> dict[str, str]:
    """Returns a cluster's client settings with every reference replaced. A Failure names all that failed.

    Relative paths start at the folder of the file that declares the cluster. Without REPL_ALLOW_FILES a file
    must be in that folder. `trusted` is for a plan file: the folder that it names counts only inside these.
    """
    folder = Path(folder_of(cluster.source))
    here = trusted is None or any(folder.resolve().is_relative_to(parent.resolve()) for parent in trusted)
    secrets = ClientSecrets(os.environ if environment is None else environment, (folder,) if here else ())
    settings: dict[str, Setting] = {}
    for key, value in cluster.client.items():
        match value:
            case {"file": str(path)}:
                settings[key] = {"file": str(folder / path)}
            case _:
                settings[key] = value
    resolved: dict[str, str] = {}

    def take(key: str, value: Setting) -> None:
        resolved[key] = secrets.text(key, value)

    _attempt(cluster, [partial(secrets.check_addresses, cluster.bootstrap, settings)])
    # Everything is checked before the first reference is read.
    _attempt(cluster, [partial(secrets.check, key, value) for key, value in settings.items()])
    _attempt(cluster, [partial(take, key, value) for key, value in settings.items()])
    return resolved


def _attempt(cluster: Cluster, actions: Iterable[Callable[[], object]]) -> None:
    """Carries out the actions. A Failure names every setting of the cluster that one of them refused."""
    problems: list[Diagnostic] = []
    for action in actions:
        try:
            action()
        except ClientSettingsError as wrong:
            value = cluster.client.get(wrong.key)
            place = value.source if isinstance(value, PlacedReference) else cluster.source
            what = f'"{wrong.key}" of cluster {cluster.name}: {wrong.why}'
            problems.append(error(what, wrong.hint, source=place, code="secret"))
    if problems:
        raise Failure(problems)


def resolved_endpoints(
    clusters: Iterable[Cluster], trusted: Sequence[Path] | None
) -> dict[str, ClusterEndpoint]:
    """Returns how each cluster is reached. Failure names every secret that is missing, of all clusters.

    `trusted` is for clusters that a plan file names: see `resolve`.
    """
    endpoints: dict[str, ClusterEndpoint] = {}
    problems: list[Diagnostic] = []
    for cluster in clusters:
        try:
            settings = resolve(cluster, trusted=trusted)
        except Failure as failure:
            problems += failure.diagnostics
            continue
        command = ClientSecrets(os.environ).token_command(cluster.name)
        endpoints[cluster.name] = ClusterEndpoint(
            cluster.name, cluster.bootstrap, settings, command, cluster.id
        )
    if problems:
        raise Failure(problems)
    return endpoints
