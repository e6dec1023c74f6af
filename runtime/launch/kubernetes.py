"""This module runs jobs on Kubernetes: kubectl applies, finds and deletes the Deployment of a job's driver.

Kubernetes does what a supervisor does elsewhere, and keeps the state of the job: it is found and stopped from
any machine with kubectl.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from runtime.contract.launching import LaunchError, LaunchHandle, LaunchState, LaunchStatus
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.launch import manifest
from runtime.launch.manifest import COMPONENT, DRIVER, INSTANCE, name_of

_TIMEOUT_S = 60.0  # of a call of kubectl
_FIND_S = 10.0  # until the API server has answered where a job is looked for
_GONE_S = 60.0  # until a pod that was killed has disappeared
_SECRET_BYTES = 32
_STARTING = ("ContainerCreating", "PodInitializing")
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_FINAL = {int(code): code.name.lower().replace("_", " ") for code in JobExit if code.final}


@dataclass(frozen=True, slots=True)
class KubernetesLauncher:
    """A KubernetesLauncher launches jobs in one namespace."""

    options: LaunchSpec

    def launch(self, spec: JobSpec) -> LaunchHandle:
        manifest.check(spec)
        running = self.find(spec.job)
        if running.runs and running.handle is not None:
            raise LaunchError(
                f"the job {spec.job} runs already ({running.handle.where})",
                f"wait, if another apply is starting it; else end it with kubectl delete deployment"
                f" {name_of(spec.job)} --namespace {self._namespace}",
            )
        if running.state is LaunchState.UNKNOWN and running.handle is not None:
            raise LaunchError(f"the state of the job {spec.job} is not known: {running.why}")
        self._delete(spec.job, _TIMEOUT_S)
        authentication = secrets.token_hex(_SECRET_BYTES)
        resources = manifest.encode(manifest.secret(spec, authentication), manifest.deployment(spec))
        # Applied by the server: kubectl would keep a copy of the Secret in an annotation.
        self._kubectl(
            *("apply", "--server-side", "--force-conflicts", "--field-manager=repl", "-f", "-"),
            text=resources,
        )
        return self._handle(spec.job)

    def update(self, spec: JobSpec) -> None:
        """Writes the spec of the job's Secret; the Deployment stays unchanged."""
        manifest.check(spec)
        patch = {"stringData": {manifest.SPEC: jobspec.encode(spec).decode()}}
        words = ("patch", "secret", name_of(spec.job), "--type=merge", "--patch-file=/dev/stdin")
        self._kubectl(*words, text=manifest.encode(patch))

    def find(self, job: str) -> LaunchStatus:
        handle = self._handle(job)
        try:
            selected = (f"--selector={INSTANCE}={name_of(job)}", f"--request-timeout={_FIND_S:.0f}s")
            text = self._kubectl("get", "deployments,pods", *selected, "-o=json")
        except LaunchError as error:
            return LaunchStatus(LaunchState.UNKNOWN, handle, error.what)
        items = json.loads(text)["items"]
        deployed = next((item for item in items if item["kind"] == "Deployment"), None)
        if deployed is None:
            return LaunchStatus(LaunchState.UNKNOWN, None, "there is no Deployment of this job")
        pods = [item for item in items if item["kind"] == "Pod" and _is_driver(item)]
        return LaunchStatus(*_state(deployed, pods, handle))

    def stop(self, job: str, grace_s: float) -> None:
        self._delete(job, grace_s)
        self._kubectl("delete", "secret", name_of(job), "--ignore-not-found")

    def tail(self, job: str, lines: int = 20) -> list[str]:
        try:
            return self._kubectl("logs", f"deployment/{name_of(job)}", f"--tail={lines}").splitlines()
        except LaunchError as error:
            return [error.what]

    def _delete(self, job: str, grace_s: float) -> None:
        """Deletes the Deployment, and waits until the pods of driver and executors are gone.

        Pods that are left after `grace_s` are killed. Raises LaunchError where some are still there then.
        """
        name = name_of(job)
        grace, killed = f"--timeout={max(int(grace_s), 1)}s", f"--timeout={_GONE_S:.0f}s"
        with suppress(LaunchError):  # some pods have not ended in time, or the next call fails as well
            deployment = ("delete", "deployment", name, "--ignore-not-found", "--cascade=foreground")
            self._kubectl(*deployment, grace, within_s=grace_s + _TIMEOUT_S)
        left = ("delete", "pods", f"--selector={INSTANCE}={name}", "--ignore-not-found", "--grace-period=1")
        self._kubectl(*left, killed, within_s=_GONE_S + _TIMEOUT_S)

    def _handle(self, job: str) -> LaunchHandle:
        name = name_of(job)
        return LaunchHandle(
            job,
            f"deployment {self._namespace}/{name}",
            f"kubectl logs -n {self._namespace} deployment/{name}",
        )

    @property
    def _namespace(self) -> str:
        return manifest.namespace_of(self.options)

    def _kubectl(self, *words: str, text: bytes | None = None, within_s: float = _TIMEOUT_S) -> str:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise LaunchError("kubectl was not found", "install it where repl is called")
        command = [kubectl, "--namespace", self._namespace]
        if context := self.options.options.get("context"):
            command += ["--context", context]
        try:
            done = subprocess.run(
                [*command, *words], input=text or b"", capture_output=True, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"kubectl {words[0]} did not answer within {within_s:.0f} s") from error
        if done.returncode:
            why = _readable(done.stderr.decode(errors="replace"))
            raise LaunchError(f"kubectl {words[0]}: {why}", "look at kubectl's context and its rights")
        return done.stdout.decode(errors="replace")


def _is_driver(pod: dict[str, Any]) -> bool:
    """Returns whether this is a driver's pod that is not being deleted."""
    metadata = pod["metadata"]
    return metadata.get("labels", {}).get(COMPONENT) == DRIVER and "deletionTimestamp" not in metadata


def _state(
    deployed: dict[str, Any], pods: Sequence[dict[str, Any]], handle: LaunchHandle
) -> tuple[LaunchState, LaunchHandle, str]:
    """Returns the job's state. RUNNING has a reason where the driver's container does not start."""
    if not pods:
        conditions = deployed.get("status", {}).get("conditions", ())
        refused = _condition(conditions, "ReplicaFailure", "True")
        why = f"Kubernetes refuses the driver's pod: {refused}" if refused else ""
        return LaunchState.RUNNING, handle, why
    status = max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))["status"]
    containers = status.get("containerStatuses", ())
    if not containers:
        unscheduled = _condition(status.get("conditions", ()), "PodScheduled", "False")
        why = f"no node takes the driver's pod: {unscheduled}" if unscheduled else ""
        return LaunchState.RUNNING, handle, why
    (container,) = containers
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    if "running" in state:
        return LaunchState.RUNNING, handle, ""
    if ended is not None:
        code = int(ended.get("exitCode", 1))
        if code in _FINAL:
            return LaunchState.ENDED, handle, _FINAL[code]
        reason = f" ({ended['reason']})" if ended.get("reason") not in (None, "Error") else ""
        return LaunchState.RESTARTING, handle, f"the driver ended with {code}{reason}"
    return LaunchState.RUNNING, handle, _waits(container, state.get("waiting", {}))


def _waits(container: dict[str, Any], waiting: dict[str, Any]) -> str:
    reason, message = str(waiting.get("reason", "")), _readable(str(waiting.get("message", "")))
    if reason in ("", *_STARTING):
        return ""
    said = ": ".join(filter(None, (reason, message)))
    if reason in _NO_IMAGE:
        return f"the image {container.get('image', '')} can't be pulled: {said}"
    return f"the driver's container can't be started: {said}"


def _condition(conditions: Sequence[dict[str, Any]], kind: str, status: str) -> str:
    """Returns the message of a condition; "" where it does not hold."""
    for condition in conditions:
        if condition.get("type") == kind and condition.get("status") == status:
            return _readable(str(condition.get("message") or condition.get("reason") or kind))
    return ""


def _readable(text: str) -> str:
    """Returns a message as one line, without what a terminal would interpret."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:500]
