"""This module runs jobs on Kubernetes: kubectl applies, finds and deletes a SparkApplication of the Spark
operator.

The operator does what a supervisor does elsewhere. The spec is shipped as a Secret. The secrets that it
refers to come from one Secret of the namespace, named in the launcher's options, as variables and as files.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from runtime.contract.launching import LaunchError, LaunchHandle, LaunchState, LaunchStatus
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.launch.command import CLOSED, HEAP, QUIET, SECURED, heartbeats
from runtime.launch.launcher import referenced_variables, refuse_secrets

SPARK_VERSION = "4.3.0"  # of the image that this release builds; the planner itself has no Spark
OPTIONS = {
    "image": "the image with Spark, Python and this product (needed)",
    "namespace": "the namespace, `default` unless said",
    "secret": "the Secret whose keys are the variables that the topology names",
    "service_account": "the driver's, `spark` unless said",
    "path": "where the product lies in the image, `/opt/repl` unless said",
    "spark_version": f"Spark's version in the image, `{SPARK_VERSION}` unless said",
    "context": "kubectl's context",
}
_KUBECTL_TIMEOUT_S = 60.0
# The states of an application as the operator names them.
_RUNNING = {"", "NEW", "SUBMITTED", "RUNNING", "SUCCEEDING"}
_RESTARTING = {"PENDING_RERUN", "INVALIDATING", "FAILING", "SUBMISSION_FAILED", "PENDING_SUBMISSION"}
_ENDED = {"COMPLETED", "FAILED"}


@dataclass(frozen=True, slots=True)
class KubernetesLauncher:
    """A KubernetesLauncher launches jobs in one namespace.

    It does not use `home`, because the cluster keeps the jobs' state.
    """

    options: LaunchSpec
    home: Path

    def launch(self, spec: JobSpec) -> LaunchHandle:
        text = manifest(spec)
        running = self.find(spec.job)
        if running.state in (LaunchState.RUNNING, LaunchState.RESTARTING) and running.handle is not None:
            raise LaunchError(
                f"the job {spec.job} runs already ({running.handle.where})",
                "wait, if another apply is starting it; else end it with kubectl delete sparkapplication"
                f" {name_of(spec.job)} --namespace {self._namespace()}",
            )
        if running.state is LaunchState.UNKNOWN and running.handle is not None:
            raise LaunchError(f"what the job {spec.job} does can't be told: {running.why}")
        self._kubectl("delete", "sparkapplication", name_of(spec.job), "--ignore-not-found")
        self._kubectl("apply", "-f", "-", text=text)
        return self._handle(spec.job)

    def update(self, spec: JobSpec) -> None:
        """Applies only the Secret of the spec; the application stays unchanged."""
        self._kubectl("apply", "-f", "-", text=manifest(spec).split("\n---\n")[0])

    def find(self, job: str) -> LaunchStatus:
        try:
            text = self._kubectl("get", "sparkapplication", name_of(job), "--ignore-not-found", "-o", "json")
        except LaunchError as error:
            return LaunchStatus(LaunchState.UNKNOWN, self._handle(job), error.what)
        if not text.strip():
            return LaunchStatus(LaunchState.UNKNOWN, None, "no SparkApplication of this name")
        return LaunchStatus(*_state(json.loads(text), self._handle(job)))

    def stop(self, job: str, grace_s: float) -> None:
        name, grace = name_of(job), max(int(grace_s), 1)
        self._kubectl(
            *("delete", "sparkapplication", name, "--ignore-not-found", "--wait", f"--timeout={grace}s"),
            within_s=grace_s + _KUBECTL_TIMEOUT_S,
        )
        self._kubectl("delete", "secret", name, "--ignore-not-found")

    def tail(self, job: str, lines: int = 20) -> list[str]:
        try:
            return self._kubectl("logs", f"{name_of(job)}-driver", f"--tail={lines}").splitlines()
        except LaunchError as error:
            return [error.what]

    def _handle(self, job: str) -> LaunchHandle:
        namespace, name = self._namespace(), name_of(job)
        return LaunchHandle(
            job, f"sparkapplication {namespace}/{name}", f"kubectl logs -n {namespace} {name}-driver"
        )

    def _namespace(self) -> str:
        return self.options.options.get("namespace", "default")

    def _kubectl(self, *words: str, text: str | None = None, within_s: float = _KUBECTL_TIMEOUT_S) -> str:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise LaunchError("kubectl was not found", "install it where repl is called")
        command = [kubectl, "--namespace", self._namespace()]
        if context := self.options.options.get("context"):
            command += ["--context", context]
        try:
            done = subprocess.run(
                [*command, *words], input=text, capture_output=True, text=True, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"kubectl {words[0]} did not answer within {within_s:.0f} s") from error
        if done.returncode:
            raise LaunchError(f"kubectl {words[0]}: {done.stderr.strip()[:500]}", "look at kubectl's context")
        return done.stdout


def _state(application: dict[str, Any], handle: LaunchHandle) -> tuple[LaunchState, LaunchHandle, str]:
    reported = application.get("status", {}).get("applicationState", {})
    state, why = str(reported.get("state", "")), str(reported.get("errorMessage", ""))
    if state in _RUNNING:
        return LaunchState.RUNNING, handle, why
    if state in _RESTARTING:
        return LaunchState.RESTARTING, handle, why or state
    if state in _ENDED:
        return LaunchState.ENDED, handle, why or state
    return LaunchState.UNKNOWN, handle, why or state


def manifest(spec: JobSpec) -> str:
    """Returns the Secret with the spec, and the SparkApplication, as YAML. Raises LaunchError."""
    refuse_secrets(spec)
    options = spec.launch.options
    variables = referenced_variables(spec)
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise LaunchError(
            f"the launcher kubernetes has no option {', '.join(unknown)}", f"it knows {', '.join(OPTIONS)}"
        )
    if "image" not in options:
        raise LaunchError("the launcher kubernetes needs the option image", "add options: {image: …}")
    if variables and "secret" not in options:
        raise LaunchError(
            f"{', '.join(variables)} must come from a Secret", "name it: options: {secret: NAME}"
        )
    path = options.get("path", "/opt/repl").rstrip("/")
    return _template().render(
        job=spec.job,
        name=name_of(spec.job),
        namespace=options.get("namespace", "default"),
        spec=jobspec.encode(spec).decode(),
        spark_version=options.get("spark_version", SPARK_VERSION),
        image=options["image"],
        main=f"local://{path}/runtime/driver/main.py",
        path=path,
        conf={**QUIET, **SECURED, **heartbeats(spec.launch.conf), **spec.launch.conf, **CLOSED},
        heap=HEAP,
        memory=spec.launch.memory,
        slots=spec.slots or 1,
        variables=variables,
        secret=options.get("secret", ""),
        service_account=options.get("service_account", "spark"),
    )


def name_of(job: str) -> str:
    """Returns a valid Kubernetes name for the job.

    A name that had to be changed gets a digest, so that names stay unique.
    """
    plain = re.sub(r"[^a-z0-9-]+", "-", job.lower()).strip("-")[:40].strip("-")
    if plain == job:
        return f"repl-{job}"
    return "-".join(filter(None, ("repl", plain, hashlib.sha256(job.encode()).hexdigest()[:8])))


def _template() -> jinja2.Template:
    environment = jinja2.Environment(  # noqa: S701 - every value goes through json, which YAML reads
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = json.dumps
    environment.filters["comment"] = lambda text: " ".join(str(text).split())
    return environment.get_template("spark_application.yaml.j2")
