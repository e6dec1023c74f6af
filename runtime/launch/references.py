"""Secrets reach a job by reference only; that what they name is there is looked at before it starts.

The names travel in the spec. The values are in the environment that the supervisor inherits from who starts
it, and hands on to the job and to every new start of it; or in files that are read where they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from runtime.contract.client.secret_words import OPERATOR_KEYS, secret_settings
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.values import ClientSettingsError
from runtime.contract.spec.jobspec import JobSpec
from runtime.launch.launcher import LaunchError


def references(spec: JobSpec) -> Iterator[tuple[str, str, str]]:
    """(cluster's setting, "env" or "file", name)."""
    for name, cluster in sorted(spec.clusters.items()):
        for key, value in sorted(cluster.client.items()):
            if isinstance(value, dict):
                yield from ((f"{name}: {key}", kind, what) for kind, what in value.items())


def _check_allowed(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """The job's processes would refuse the same, but only its log would tell."""
    secrets = ClientSecrets(environ)
    for name, cluster in sorted(spec.clusters.items()):
        try:
            secrets.check_all(cluster.bootstrap, cluster.client)
        except ClientSettingsError as wrong:
            raise LaunchError(f"{name}: {wrong.key}: {wrong.why}", wrong.way_out) from None


def variables(spec: JobSpec) -> list[str]:
    return sorted({name for _, kind, name in references(spec) if kind == "env"})


def refuse_secrets(spec: JobSpec) -> None:
    """Raise LaunchError where the spec would write a secret of Spark down."""
    if found := secret_settings(spec.launch.conf):
        raise LaunchError(
            f"the job spec would hold the secret {', '.join(found)}",
            "keep it on the machines that run the job: in spark-defaults.conf or in the environment",
        )


def without_operator_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job: what only the one that plans and applies needs is left out."""
    return {name: value for name, value in environ.items() if name not in OPERATOR_KEYS}


def check(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """All that is missing at once, by name. Before it, what the operator does not allow."""
    missing: list[str] = []
    ways_out: set[str] = set()
    _check_allowed(spec, environ)
    for setting, kind, name in references(spec):
        if kind == "env" and name not in environ:
            missing.append(f"{setting} wants the environment variable {name}, which is not set")
            ways_out.add("set the variable where repl is called: the job inherits it")
        if kind == "file" and not os.access(Path(name), os.R_OK):
            missing.append(f"{setting} wants the file {name}, which can't be read")
            ways_out.add("put the file there, readable by who calls repl")
    if missing:
        raise LaunchError("; ".join(missing), "; ".join(sorted(ways_out)))
