"""Resolves secrets, only where a connection is opened, and passes them to its client alone."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from planner.model.diagnostic import Diagnostic, Failure, SourceLocation, error
from planner.model.topology import Cluster, SecretRef, Setting, looks_secret
from runtime.contract.client.secrets import SENSITIVE, ClientSecrets, Value
from runtime.contract.client.settings import ClientSettingsError


def resolve(
    cluster: Cluster,
    environment: Mapping[str, str] | None = None,
    trusted: Iterable[Path] | None = None,
) -> dict[str, str]:
    """Returns a cluster's client settings with every reference replaced. A Failure names all that failed.

    Relative paths start at the folder of the file that declares the cluster. Without REPL_ALLOW_FILES a file
    must be in that folder. `trusted` is for a plan file: the folder that it names counts only inside these.
    """
    folder = _folder_of(cluster)
    here = trusted is None or any(folder.resolve().is_relative_to(parent.resolve()) for parent in trusted)
    secrets = ClientSecrets(os.environ if environment is None else environment, (folder,) if here else ())
    settings = {key: _value(value, folder) for key, value in cluster.client.items()}
    with _gathering(cluster) as problems, problems.noted():
        secrets.check_addresses(cluster.bootstrap, settings)
    # Everything is checked before the first reference is read.
    with _gathering(cluster) as problems:
        for key, value in settings.items():
            with problems.noted():
                secrets.check(key, value)
    resolved: dict[str, str] = {}
    with _gathering(cluster) as problems:
        for key, value in settings.items():
            with problems.noted():
                resolved[key] = secrets.text(key, value)
    return resolved


@dataclass(frozen=True, slots=True)
class ResolvedClient:
    """Holds a cluster's client settings, resolved, and the operator's token command. It is never shown."""

    settings: Mapping[str, str] = field(repr=False)
    token_command: str | None = field(repr=False)


def resolve_all(
    clusters: Iterable[Cluster], trusted: Sequence[Path] | None = None
) -> dict[str, ResolvedClient]:
    """Resolves the settings of many clusters. Failure names every secret that is missing, of all clusters.

    `trusted` is for clusters that a plan file names: see `resolve`.
    """
    resolved: dict[str, ResolvedClient] = {}
    problems: list[Diagnostic] = []
    for cluster in clusters:
        try:
            resolved[cluster.name] = ResolvedClient(resolve(cluster, trusted=trusted), token_command(cluster))
        except Failure as failure:
            problems += failure.diagnostics
    if problems:
        raise Failure(problems)
    return resolved


def token_command(cluster: Cluster, environment: Mapping[str, str] | None = None) -> str | None:
    """Returns the operator's command that prints OAUTHBEARER tokens for a cluster; no topology sets it."""
    return ClientSecrets(os.environ if environment is None else environment).token_command(cluster.name)


@dataclass(slots=True)
class _Problems:
    cluster: Cluster
    found: list[Diagnostic] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except ClientSettingsError as wrong:
            value = self.cluster.client.get(wrong.key)
            place = (value.source if isinstance(value, SecretRef) else None) or self.cluster.source
            what = f'"{wrong.key}" of cluster {self.cluster.name}: {wrong.why}'
            self.found.append(error(what, wrong.hint, source=place, code="secret"))


@contextmanager
def _gathering(cluster: Cluster) -> Iterator[_Problems]:
    problems = _Problems(cluster)
    yield problems
    if problems.found:
        raise Failure(problems.found)


def _value(value: Setting, folder: Path) -> Value:
    match value:
        case str():
            return value
        case SecretRef(kind="env", name=name):
            return {"env": name}
        case SecretRef(name=name):
            return {"file": str(folder / name)}


def masked(client: Mapping[str, Setting]) -> dict[str, str]:
    """Returns client settings as they may be shown: references as written, secrets masked."""
    return {key: _masked(key, value) for key, value in client.items()}


def _masked(key: str, value: Setting) -> str:
    if isinstance(value, SecretRef):
        return f"{{{value.kind}: {value.name}}}"
    return SENSITIVE if looks_secret(key) else value


def _folder_of(cluster: Cluster) -> Path:
    place: SourceLocation | None = cluster.source
    return Path(place.file).parent if place is not None else Path()
