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

from runtime.contract.launching import (
    CONTAINER_STARTS,
    LaunchError,
    LaunchHandle,
    LaunchState,
    LaunchStatus,
    one_line,
)
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import FINAL_EXITS, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.launch import manifest
from runtime.launch.manifest import (
    COMPONENT,
    DESTINATION,
    DRIVER,
    INSTANCE,
    JOB,
    TOPOLOGY,
    Resource,
    name_of,
    secret_of,
)

_TIMEOUT_S = 60.0  # of a call of kubectl
_FIND_S = 10.0  # until the API server has answered where a job is looked for
_GONE_S = 60.0  # until a pod that was killed has disappeared
_SECRET_BYTES = 32
_HINT = "look at kubectl's context and its rights"
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")


@dataclass(frozen=True, slots=True)
class KubernetesLauncher:
    """Launches jobs in one namespace.

    `destination` is the cluster id of the jobs' destination: other topologies may have jobs of the same name
    in the namespace, for other clusters. Their objects are never changed. It is "" where jobs are only read.
    """

    options: LaunchSpec
    destination: str = ""

    def launch(self, spec: JobSpec) -> LaunchHandle:
        manifest.check(spec)
        for other in self._objects(spec.job)[1].values():
            raise LaunchError(
                f"{_owned(other)}, and is left as it is",
                "give this job another name, or another namespace: options: {namespace: NAME}."
                " If nothing needs that object any more, delete it with kubectl",
            )
        running = self.find(spec.job)
        if running.runs and running.handle is not None:
            raise LaunchError(
                f"the job {spec.job} runs already ({running.handle.where})",
                f"wait, if another apply is starting it; else end it with kubectl delete deployment"
                f" {name_of(spec.job)} --namespace {self._namespace}",
            )
        if running.state is LaunchState.UNKNOWN and running.handle is not None:
            raise LaunchError(f"the state of the job {spec.job} is not known: {running.why}", _HINT)
        # Kubernetes keeps the pod of a lost node until the node is deleted, so this does not wait for it. If
        # its driver still runs, the new driver fences it.
        self._delete(spec.job, _TIMEOUT_S)
        self._kill(spec.job, "--wait=false")
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
        if "Secret" not in self._objects(spec.job)[0]:
            raise LaunchError(
                f"there is no Secret {secret_of(spec.job)} of this job in {self._namespace}",
                "run repl apply where the job's options name its namespace and context: it launches the job"
                " again where it is gone",
            )
        patch = {"stringData": {manifest.SPEC: jobspec.encode(spec).decode()}}
        words = ("patch", "secret", secret_of(spec.job), "--type=merge", "--patch-file=/dev/stdin")
        self._kubectl(*words, text=manifest.encode(patch))

    def find(self, job: str) -> LaunchStatus:
        handle = self._handle(job)
        try:
            selected = (f"--selector={INSTANCE}={name_of(job)}", f"--request-timeout={_FIND_S:.0f}s")
            items = _items(self._kubectl("get", "deployments,pods", *selected, "-o=json"))
        except LaunchError as error:
            return LaunchStatus(LaunchState.UNKNOWN, handle, error.what)
        deployed = next((item for item in items if item["kind"] == "Deployment"), None)
        if deployed is None:
            return LaunchStatus(LaunchState.UNKNOWN, None, "there is no Deployment of this job")
        if self.destination and not self._owns(job, deployed):
            return LaunchStatus(LaunchState.UNKNOWN, handle, _owned(deployed))
        # Pods that are being deleted, and those of executors, say nothing of the job.
        pods = [
            item
            for item in items
            if item["kind"] == "Pod"
            and item["metadata"].get("labels", {}).get(COMPONENT) == DRIVER
            and "deletionTimestamp" not in item["metadata"]
        ]
        return LaunchStatus(*_state(deployed, pods, handle))

    def stop(self, job: str, grace_s: float) -> str:
        owned, others = self._objects(job)
        left = ""
        if "Deployment" not in others:
            self._delete(job, grace_s)
            left = self._await_pods(job)
        if "Secret" in owned:
            self._kubectl("delete", "secret", secret_of(job), "--ignore-not-found")
        return left

    def tail(self, job: str, lines: int = 20) -> list[str]:
        try:
            words = ("logs", f"deployment/{name_of(job)}", f"--container={DRIVER}", f"--tail={lines}")
            if not (text := self._kubectl(*words)):  # it was started again a moment ago
                with suppress(LaunchError):
                    text = self._kubectl(*words, "--previous")
            return text.splitlines()
        except LaunchError as error:
            return [error.what]

    def _objects(self, job: str) -> tuple[dict[str, Resource], dict[str, Resource]]:
        """Returns the job's Deployment and Secret by kind, and what another owner has below their names."""
        names = (f"deployment/{name_of(job)}", f"secret/{secret_of(job)}")
        there = _items(self._kubectl("get", *names, "--ignore-not-found", "-o=json"))
        owned = {item["kind"]: item for item in there if self._owns(job, item)}
        return owned, {item["kind"]: item for item in there if item["kind"] not in owned}

    def _owns(self, job: str, item: Resource) -> bool:
        noted = item["metadata"].get("annotations", {})
        return bool(noted.get(JOB) == job and noted.get(DESTINATION) == self.destination)

    def _delete(self, job: str, grace_s: float) -> None:
        """Deletes the Deployment, and its pods with it, for which it waits up to `grace_s`.

        Raises LaunchError where the Deployment is still there then, and would make another pod.
        """
        delete = ("delete", "deployment", name_of(job), "--ignore-not-found")
        grace = f"--timeout={max(int(grace_s), 1)}s"
        try:
            self._kubectl(*delete, "--cascade=foreground", grace, within_s=grace_s + _TIMEOUT_S)
        except LaunchError:
            deployed = self._objects(job)[0].get("Deployment")
            if deployed is None:
                return
            if "deletionTimestamp" not in deployed["metadata"]:
                raise
            # Its pods have not ended in time. It would wait for them, and a new one of its name disappear.
            self._kubectl(*delete, "--cascade=background", grace, within_s=grace_s + _TIMEOUT_S)

    def _kill(self, job: str, wait: str) -> None:
        selected = (f"--selector={INSTANCE}={name_of(job)}", "--ignore-not-found", "--grace-period=1")
        self._kubectl("delete", "pods", *selected, wait, within_s=_GONE_S + _TIMEOUT_S)

    def _await_pods(self, job: str) -> str:
        """Kills the pods of driver and executors that are left, and names those that do not end."""
        try:
            self._kill(job, f"--timeout={_GONE_S:.0f}s")
        except LaunchError as error:
            pods = _items(self._kubectl("get", "pods", f"--selector={INSTANCE}={name_of(job)}", "-o=json"))
            named = [f"{pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}" for pod in pods]
            if not named:
                return ""
            return (
                f"pods of the job are still there: {', '.join(sorted(named))} ({error.what}). Kubernetes"
                " can't end a pod of a lost node. Once that node is off for certain: kubectl delete pod NAME"
                f" --force --grace-period=0 --namespace {self._namespace}"
            )
        return ""

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
        except OSError as error:
            raise LaunchError(
                f"{kubectl} can't be run: {error.strerror or error}", "install it again where repl is called"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise LaunchError(
                f"kubectl {words[0]} did not answer within {within_s:.0f} s",
                "look whether the API server of kubectl's context answers, then run this again",
            ) from error
        if done.returncode:
            why = one_line(done.stderr.decode(errors="replace"))
            raise LaunchError(f"kubectl {words[0]}: {why}", _HINT)
        return done.stdout.decode(errors="replace")


def _items(text: str) -> list[Resource]:
    """Returns the objects of an answer: none, one, or a list. Raises LaunchError."""
    if not text.strip():
        return []
    try:
        answer: Resource = json.loads(text)
        items: list[Resource] = answer.get("items", [answer])
    except (ValueError, AttributeError) as error:
        raise LaunchError(
            f"kubectl did not answer in JSON: {one_line(text)}",
            "look whether kubectl is a wrapper that adds text",
        ) from error
    return items


def _owned(item: Resource) -> str:
    """Says whose the object is, by what it carries itself."""
    metadata = item["metadata"]
    noted = metadata.get("annotations", {})
    where = f"the {item['kind']} {metadata['name']}"
    if DESTINATION not in noted:
        return f"{where} was not made by repl"
    job, topology, cluster = (str(noted.get(key, "")) for key in (JOB, TOPOLOGY, DESTINATION))
    return one_line(f"{where} belongs to the job {job} of the topology {topology}, for the cluster {cluster}")


def _state(
    deployed: Resource, pods: Sequence[Resource], handle: LaunchHandle
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
    container: Resource = next((each for each in containers if each.get("name") == DRIVER), {})
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    if "running" in state:
        return LaunchState.RUNNING, handle, ""
    if why := _waits(container, state.get("waiting", {})):
        return LaunchState.RUNNING, handle, why
    if ended is not None:
        code = int(ended.get("exitCode", 1))
        if code in FINAL_EXITS:
            return LaunchState.ENDED, handle, FINAL_EXITS[code]
        said = [str(ended.get(key, "")) for key in ("reason", "message") if ended.get(key) != "Error"]
        reason = one_line(": ".join(filter(None, said)))
        return (
            LaunchState.RESTARTING,
            handle,
            f"the driver ended with {code}" + (f" ({reason})" if reason else ""),
        )
    return LaunchState.RUNNING, handle, ""


def _waits(container: Resource, waiting: Resource) -> str:
    reason, message = str(waiting.get("reason", "")), one_line(str(waiting.get("message", "")))
    if reason in ("", "CrashLoopBackOff", *CONTAINER_STARTS):
        return ""
    said = ": ".join(filter(None, (reason, message)))
    if reason in _NO_IMAGE:
        return f"the image {container.get('image', '')} can't be pulled: {said}"
    return f"the driver's container can't be started: {said}"


def _condition(conditions: Sequence[Resource], kind: str, status: str) -> str:
    """Returns the message of a condition; "" where it does not hold."""
    for condition in conditions:
        if condition.get("type") == kind and condition.get("status") == status:
            return one_line(str(condition.get("message") or condition.get("reason") or kind))
    return ""
