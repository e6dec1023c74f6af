"""Secrets: resolved only where a connection is opened, given to its client and to nothing else."""

import os
from collections.abc import Mapping
from pathlib import Path

from planner.model.diagnostic import Diagnostic, Failure, Source, error
from planner.model.topology import Cluster, SecretRef, Setting, looks_secret
from runtime.contract.token_endpoint import TOKEN_ENDPOINT_URL, token_endpoint_problem

MAX_BYTES = 2**20
SENSITIVE = "(sensitive value)"


def resolve(
    cluster: Cluster, relative_to: Path | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A cluster's client settings with every reference replaced. Failure names all that can't be had.

    Relative paths start at `relative_to`, by default the folder of the file that declares the cluster.
    """
    variables = os.environ if environment is None else environment
    folder = relative_to if relative_to is not None else _folder_of(cluster)
    resolved: dict[str, str] = {}
    problems: list[Diagnostic] = []
    for key, value in cluster.client.items():
        found = _resolved(value, folder, variables)
        if isinstance(found, str):
            resolved[key] = found
        else:
            what, mend = found
            place = (value.source if isinstance(value, SecretRef) else None) or cluster.source
            problems.append(
                error(f'"{key}" of cluster {cluster.name}: {what}', mend, source=place, code="secret")
            )
    endpoint = token_endpoint_problem(resolved.get(TOKEN_ENDPOINT_URL), variables)
    if endpoint is not None:
        what = f'"{TOKEN_ENDPOINT_URL}" of cluster {cluster.name} {endpoint[0]}'
        problems.append(error(what, endpoint[1], source=cluster.source, code="token_endpoint"))
    if problems:
        raise Failure(problems)
    return resolved


def masked(client: Mapping[str, Setting]) -> dict[str, str]:
    """Client settings as they may be shown: references as written, secrets never."""
    return {key: _masked(key, value) for key, value in client.items()}


def _masked(key: str, value: Setting) -> str:
    if isinstance(value, SecretRef):
        return f"{{{value.kind}: {value.name}}}"
    return SENSITIVE if looks_secret(key) else value


def _folder_of(cluster: Cluster) -> Path:
    place: Source | None = cluster.source
    return Path(place.file).parent if place is not None else Path()


def _resolved(value: Setting, folder: Path, variables: Mapping[str, str]) -> str | tuple[str, str]:
    match value:
        case str():
            return value
        case SecretRef(kind="env", name=name):
            if name not in variables:
                return f"the environment variable {name} is not set", f"set {name} before running repl"
            return variables[name] or (f"the environment variable {name} is empty", f"set {name}")
        case SecretRef(name=name):
            return _from_file(folder / name)


def _from_file(path: Path) -> str | tuple[str, str]:
    """The file's text without the newline at its end."""
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as wrong:
        return f"the file {path} can't be read: {wrong.strerror}", "make it readable, or name another"
    except UnicodeDecodeError:
        return f"the file {path} is not text in UTF-8", "name another"
    if len(content) > MAX_BYTES:
        return f"the file {path} is larger than 1 MiB", "name another"
    stripped = text.removesuffix("\n").removesuffix("\r")
    return stripped or (f"the file {path} is empty", "write the secret into it")
