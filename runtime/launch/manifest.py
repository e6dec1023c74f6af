"""This module describes a job to Kubernetes: its Secret, the Deployment of its driver, its executors' pods.

The driver runs in the pod of a Deployment and asks the API server for executors itself, as a driver of Spark
does in client mode. So Kubernetes starts a driver again that ended, was deleted or lost its node; the ledger
fences the one before (R3, R10). Executors belong to the driver's pod and are deleted with it.

No value of a secret is part of a Deployment, of a pod or of Spark's settings. Pods get the job's Secret and
the one of the option `secret` from Kubernetes.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from runtime.contract.launching import LaunchError
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec, spark_bytes
from runtime.launch.command import HEAP, check_options
from runtime.launch.launcher import referenced_variables, refuse_secrets

OPTIONS = {
    "image": "the image with Spark, Python and this product (needed)",
    "namespace": "the namespace, `default` unless set",
    "secret": "the Secret whose keys are the variables and files that the topology names",
    "service_account": "the driver's, `repl` unless set",
    "pull_secret": "the Secret with which Kubernetes pulls the image",
    "path": "where the product lies in the image, `/opt/repl` unless set",
    "context": "kubectl's context",
}
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
# Annotations: the job's and the topology's name as they are, and the cluster id of the destination.
JOB, TOPOLOGY, DESTINATION = "repl/job", "repl/topology", "repl/destination"
DRIVER, EXECUTOR = "driver", "executor"
MOUNT: Final = "/etc/repl/job"  # the job's Secret: the keys below are files there
SPEC, AUTHENTICATION = "spec.json", "authentication"
STATE: Final = "/var/lib/repl/jobs"  # a folder that lives as long as the pod
_SECRETS = "/etc/repl/secrets"
_GROUP = 10001  # that of the image; it reads the mounted Secrets
_NODE_SELECTORS = ("spark.kubernetes.node.selector.", "spark.kubernetes.driver.node.selector.")
_LABEL, _ANNOTATION = "spark.kubernetes.driver.label.", "spark.kubernetes.driver.annotation."
# Kubernetes waits 300 s by default before it starts a pod of a lost node elsewhere. A driver that still runs
# there is fenced, so there is no reason to wait.
_LOST_NODE_S = 10
_GRACE_S = 60  # for the driver to end its transactions

Resource = dict[str, Any]


def encode(*resources: Resource) -> bytes:
    """Returns one resource, or several as a list, in JSON, which is YAML."""
    if len(resources) == 1:
        return json.dumps(resources[0]).encode()
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": resources}).encode()


def name_of(job: str) -> str:
    """Returns a valid Kubernetes name for the job.

    A name that had to be changed gets a digest, so that names stay unique.
    """
    plain = re.sub(r"[^a-z0-9-]+", "-", job.lower()).strip("-")[:40].strip("-")
    if plain == job:
        return f"repl-{job}"
    return "-".join(filter(None, ("repl", plain, hashlib.sha256(job.encode()).hexdigest()[:8])))


def secret_of(job: str) -> str:
    """Returns the name of the job's own Secret."""
    return f"{name_of(job)}-job"


def namespace_of(launch: LaunchSpec) -> str:
    """Returns the namespace of the job's resources."""
    return launch.options.get("namespace", "default")


def service_account_of(launch: LaunchSpec) -> str:
    """Returns the name of the driver's service account."""
    return launch.options.get("service_account", "repl")


def check(spec: JobSpec) -> None:
    """Raises LaunchError for what can be known to be wrong before Kubernetes sees it."""
    refuse_secrets(spec)
    options, variables = spec.launch.options, referenced_variables(spec)
    check_options(options, OPTIONS, "kubernetes")
    if "image" not in options:
        raise LaunchError("the launcher kubernetes needs the option image", "add options: {image: …}")
    if variables and "secret" not in options:
        raise LaunchError(
            f"{', '.join(variables)} must come from a Secret", "name it: options: {secret: NAME}"
        )
    if taken := [key for key in ("secret", "pull_secret") if options.get(key) == secret_of(spec.job)]:
        raise LaunchError(
            f"options.{taken[0]}: {secret_of(spec.job)} is the job's own Secret,"
            " which is deleted with the job",
            "name another Secret",
        )
    for role in (DRIVER, EXECUTOR):
        _memory(spec.launch, role)


def secret(spec: JobSpec, authentication: str) -> Resource:
    """Returns the job's Secret: the spec, which only names secrets, and the secret of Spark's processes."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(spec, secret_of(spec.job)),
        "type": "Opaque",
        "stringData": {SPEC: jobspec.encode(spec).decode(), AUTHENTICATION: authentication},
    }


def deployment(spec: JobSpec) -> Resource:
    """Returns the Deployment of the driver, with one pod."""
    conf, labels = spec.launch.conf, _labels(spec.job, DRIVER)
    fields = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
    pod: Resource = {
        **_pod(spec, DRIVER),
        "serviceAccountName": service_account_of(spec.launch),
        "terminationGracePeriodSeconds": _GRACE_S,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _LOST_NODE_S,
            }
            for taint in ("not-ready", "unreachable")
        ],
    }
    if selector := {key: value for prefix in _NODE_SELECTORS for key, value in _below(conf, prefix).items()}:
        pod["nodeSelector"] = selector
    (container,) = pod["containers"]
    container["args"] = [DRIVER]
    container["env"] += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}} for name, field in fields.items()
    ]
    container["volumeMounts"].append({"name": "state", "mountPath": STATE})
    pod["volumes"].append({"name": "state", "emptyDir": {}})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(spec, name_of(spec.job)),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {INSTANCE: labels[INSTANCE], COMPONENT: DRIVER}},
            "template": {
                "metadata": {
                    "labels": {**_below(conf, _LABEL), **labels},
                    "annotations": {**_below(conf, _ANNOTATION), JOB: spec.job},
                },
                "spec": pod,
            },
        },
    }


def executor_pod(spec: JobSpec) -> Resource:
    """Returns the template of the executors' pods, which Spark completes.

    They ask the API server for nothing, so they get no token. Image and resources are those that Spark fills
    in, so that the driver can ask whether the namespace has room for one more.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": _labels(spec.job, EXECUTOR), "annotations": {JOB: spec.job}},
        "spec": {**_pod(spec, EXECUTOR), "automountServiceAccountToken": False},
    }


def rights(launch: LaunchSpec) -> list[Resource]:
    """Returns the driver's service account with its rights, and the role that `repl apply` needs."""
    account, namespace = service_account_of(launch), namespace_of(launch)
    driver, apply = f"{account}-driver", f"{account}-apply"
    pods = ["create", "delete", "deletecollection", "get", "list", "watch"]
    applied = ["create", "delete", "get", "list", "patch", "watch"]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(account, namespace)},
        {
            **role,
            "metadata": _named(driver, namespace),
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": pods}],
        },
        {
            **role,
            "kind": "RoleBinding",
            "metadata": _named(driver, namespace),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": driver},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
        {
            **role,
            "metadata": _named(apply, namespace),
            "rules": [
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": applied},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete", "get", "patch"]},
                {
                    "apiGroups": [""],
                    "resources": ["pods"],
                    "verbs": ["delete", "deletecollection", "get", "list", "watch"],
                },
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
            ],
        },
    ]


def _pod(spec: JobSpec, role: str) -> Resource:
    """Returns what driver and executors have in common: one container without a right on its node."""
    options, job = spec.launch.options, {"secretName": secret_of(spec.job), "defaultMode": 0o440}
    volumes: list[Resource] = [{"name": "job", "secret": job}, {"name": "tmp", "emptyDir": {}}]
    mounts: list[Resource] = [
        {"name": "job", "mountPath": MOUNT, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
    ]
    container: Resource = {
        "name": role,
        "image": options["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["tini", "--", "python3", "-m", "runtime.launch.pod"],
        "env": [{"name": "PYTHONPATH", "value": options.get("path", "/opt/repl").rstrip("/")}],
        "resources": _resources(spec.launch, role),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }
    if name := options.get("secret"):
        # Without `optional`, a pod whose Secret is missing waits for ever, and its status does not say why.
        # The variables are needed, and Kubernetes names them.
        volumes.append(
            {"name": "secrets", "secret": {"secretName": name, "defaultMode": 0o440, "optional": True}}
        )
        mounts.append({"name": "secrets", "mountPath": _SECRETS, "readOnly": True})
        container["envFrom"] = [{"secretRef": {"name": name}}]
    pod: Resource = {
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "fsGroup": _GROUP,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if name := options.get("pull_secret"):
        pod["imagePullSecrets"] = [{"name": name}]
    return pod


def _metadata(spec: JobSpec, name: str) -> Resource:
    return {
        **_named(name, namespace_of(spec.launch)),
        "labels": _labels(spec.job, DRIVER),
        "annotations": {
            JOB: spec.job,
            TOPOLOGY: spec.topology,
            DESTINATION: spec.clusters[spec.destination].id or "",
        },
    }


def _named(name: str, namespace: str) -> Resource:
    return {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "repl"}}


def _labels(job: str, role: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "repl",
        "app.kubernetes.io/name": "repl",
        INSTANCE: name_of(job),
        COMPONENT: role,
    }


def _below(conf: Any, prefix: str) -> dict[str, str]:
    """Returns the settings below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}


def _resources(launch: LaunchSpec, role: str) -> Resource:
    """Returns what Spark requests for the container of a driver or an executor. Raises LaunchError."""
    conf, memory = launch.conf, _memory(launch, role)
    cores = conf.get(f"spark.kubernetes.{role}.request.cores", conf.get(f"spark.{role}.cores", "1"))
    limits = {"memory": memory}
    if limit := conf.get(f"spark.kubernetes.{role}.limit.cores"):
        limits["cpu"] = limit
    return {"requests": {"cpu": cores, "memory": memory}, "limits": limits}


def _memory(launch: LaunchSpec, role: str) -> str:
    """Returns the memory of a JVM and of Python, in KiB as Kubernetes writes it. Raises LaunchError."""
    heap, overhead = f"spark.{role}.memory", f"spark.{role}.memoryOverhead"
    sizes = {heap: launch.conf.get(heap, HEAP), overhead: launch.conf.get(overhead, launch.memory)}
    return f"{sum(_bytes(setting, size) for setting, size in sizes.items()) + 1023 >> 10}Ki"


def _bytes(setting: str, size: str) -> int:
    """Returns the size of a setting. Raises LaunchError."""
    read = spark_bytes(size)
    if read is None:
        raise LaunchError(f"{setting}: {size} is no size", "write it as 512m or 2g")
    return read
