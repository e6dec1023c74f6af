"""This module checks what every launcher checks before it starts a job.

A launcher manages processes and Spark clusters. Commands reach a job through the control topic, and its
actual progress is read from the status topic and the ledger.

A launcher handles secrets by reference, and checks before a start that the referenced secrets exist. The
names are part of the spec. The values are in the environment that the supervisor inherits from its caller and
passes on to the job and to every restart, or in files that are read where they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from runtime.contract.client.secrets import JOB_VARIABLES, OPERATOR_KEYS, ClientSecrets, secret_settings
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.launching import LaunchError
from runtime.contract.spec.jobspec import JobSpec


def references(spec: JobSpec) -> Iterator[tuple[str, str, str]]:
    """Yields (setting, "env" or "file", name) for each reference in the settings of clients.

    The registry of a transform is needed by executors alone, which elsewhere than on this machine and on
    Kubernetes have an environment of their own.
    """
    clients = [(name, cluster.client) for name, cluster in sorted(spec.clusters.items())]
    clients += [(name, endpoint.client) for name, endpoint in sorted(spec.stores.items())]
    clients += [(f"registry of {name}", each.client) for name, each in sorted(spec.registries.items())]
    if spec.launch.launcher in ("local", "kubernetes"):
        clients += [(f"registry of {flow}", each.client) for flow, each in spec.transform_registries]
    for name, client in clients:
        for key, value in sorted(client.items()):
            if isinstance(value, dict):
                yield from ((f"{name}: {key}", kind, what) for kind, what in value.items())


def _check_allowed(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """Raises LaunchError for settings that the job's processes would refuse, because only the job's log
    would show that.
    """
    for name, check in checks_of(spec, ClientSecrets(environ)):
        try:
            check()
        except ClientSettingsError as wrong:
            raise LaunchError(f"{name}: {wrong.key}: {wrong.why}", wrong.hint) from None


def checks_of(spec: JobSpec, secrets: ClientSecrets) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields the check of each client that the job's processes have: of clusters, stores and registries.

    It raises ClientSettingsError where an address, a variable or a file is not allowed.
    """
    for name, cluster in sorted(spec.clusters.items()):
        yield name, partial(secrets.check_all, cluster.bootstrap, cluster.client)
    for name, endpoint in sorted(spec.stores.items()):
        yield name, partial(secrets.check_store, endpoint.folder, endpoint.client)
    for name, registry in (*sorted(spec.registries.items()), *spec.transform_registries):
        yield f"registry of {name}", partial(secrets.check_registry, registry.url, registry.client)


def referenced_variables(spec: JobSpec) -> list[str]:
    """Returns the names of all referenced environment variables."""
    return sorted({name for _, kind, name in references(spec) if kind == "env"})


def refuse_secrets(spec: JobSpec) -> None:
    """Raises LaunchError where the spec would contain a secret of Spark."""
    if secret_names := secret_settings(spec.launch.conf):
        raise LaunchError(
            f"the job spec would hold the secret {', '.join(secret_names)}",
            "keep it on the machines that run the job: in spark-defaults.conf or in the environment",
        )


def without_operator_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables that only planning and applying need."""
    return {name: value for name, value in environ.items() if name not in OPERATOR_KEYS}


def job_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a job. `REPL_JOB_ENV_X` becomes `X`, and comes before a variable X.

    So a job may log in as another principal than the apply that starts it.
    """
    others = {name: value for name, value in environ.items() if not name.startswith(JOB_VARIABLES)}
    for_job = {
        name.removeprefix(JOB_VARIABLES): value
        for name, value in environ.items()
        if name.startswith(JOB_VARIABLES) and name != JOB_VARIABLES
    }
    return without_operator_keys(others | for_job)


def check_references(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """Raises LaunchError for settings that are not allowed, then for all missing references at once, by
    name.
    """
    missing: list[str] = []
    hints: set[str] = set()
    _check_allowed(spec, environ)
    for setting, kind, name in references(spec):
        if kind == "env" and name not in environ:
            missing.append(f"{setting} wants the environment variable {name}, which is not set")
            hints.add("set the variable where repl is called: the job inherits it")
        if kind == "file" and not os.access(Path(name), os.R_OK):
            missing.append(f"{setting} wants the file {name}, which can't be read")
            hints.add("put the file there, readable by who calls repl")
    if missing:
        raise LaunchError("; ".join(missing), "; ".join(sorted(hints)))
