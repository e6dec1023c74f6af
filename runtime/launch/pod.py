"""This process starts the driver or an executor of a job in its pod: `python -m runtime.launch.pod ROLE`.

It becomes that process, so a signal of Kubernetes reaches it. A driver that Kubernetes starts again in the
same pod continues with the newest spec that the one before got, and gives way to a driver elsewhere.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.contract.launching import EXECUTOR_POD, LaunchError
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec, JobExit, JobSpec
from runtime.contract.whole_file import write_private
from runtime.java import find_java
from runtime.launch import manifest
from runtime.launch.command import (
    driver_application,
    properties,
    properties_file,
    spark_home,
    variables_of,
)
from runtime.launch.folder import JobFolder

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
# An executor reads `spark.authenticate.secret.file` only with a master of Kubernetes. Spark passes none on.
_MASTER = "-Dspark.master=k8s://"
# Known ports, so that a NetworkPolicy can name them; `conf` may choose others.
_PORTS = {"spark.driver.port": "7078", "spark.driver.blockManager.port": "7079"}
# What Spark gives an executor's container, by the argument that the backend takes.
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def driver(environ: Mapping[str, str], mounted: Path, state: Path) -> tuple[list[str], dict[str, str]]:
    """Prepares the driver's folder; returns its command and its environment.

    Raises LaunchError, BadJobSpec and OSError.
    """
    spec = jobspec.decode((mounted / manifest.SPEC).read_bytes())
    folder = JobFolder(state, spec.job)
    restarted = folder.spec.exists()
    folder.make()
    if restarted:
        spec = folder.read_spec()
    else:
        folder.write_spec(spec)
    spark = spark_home(environ)
    folder.renew_scratch()
    template = folder.path / "executor.json"
    write_private(template, manifest.encode(manifest.executor_pod(spec)))
    conf = {**_PORTS, **properties(spec, folder), **_fixed(spec, template, environ)}
    write_private(folder.properties, properties_file(conf))
    submit = ("--master", spec.launch.master, "--deploy-mode", "client", "--properties-file")
    pod_variables = {
        EXECUTOR_POD: str(template),
        "PYSPARK_SUBMIT_ARGS": shlex.join((*submit, str(folder.properties), "pyspark-shell")),
    }
    command = [sys.executable, *driver_application(folder, restarted=restarted)]
    return command, {**environ, **variables_of(spec, folder, spark), **pod_variables}


def _fixed(spec: JobSpec, template: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings by which Spark makes executors of the same job, image and namespace.

    The secret of `spark.authenticate` is a file: else Spark would write it into the description of each pod.
    """
    options, address = spec.launch.options, environ["POD_IP"]
    return {
        "spark.authenticate.secret.file": f"{manifest.MOUNT}/{manifest.AUTHENTICATION}",
        "spark.driver.host": f"[{address}]" if ":" in address else address,  # as Spark wants one of IPv6
        "spark.kubernetes.driver.pod.name": environ["POD_NAME"],
        "spark.kubernetes.namespace": manifest.namespace_of(spec.launch),
        "spark.kubernetes.container.image": options["image"],
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.executor.podTemplateContainerName": manifest.EXECUTOR,
    }


def executor(environ: Mapping[str, str]) -> list[str]:
    """Returns the command of an executor, as the entry point of Spark's own images has it.

    Raises LaunchError.
    """
    options = {
        int(name.removeprefix(_OPTION)): value for name, value in environ.items() if name.startswith(_OPTION)
    }
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    classes = [environ.get("SPARK_EXTRA_CLASSPATH", ""), str(spark_home(environ) / "jars" / "*")]
    arguments = [word for option, name in _ARGUMENTS.items() for word in (option, environ[name])]
    return [
        str(find_java(environ)),
        *(options[number] for number in sorted(options)),
        _MASTER,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(filter(None, classes)),
        _BACKEND,
        *arguments,
    ]


def main(roles: Sequence[str]) -> int:
    """Becomes the process of the role. Returns only where that failed."""
    try:
        if roles == [manifest.EXECUTOR]:
            command, environ = executor(os.environ), dict(os.environ)
        else:
            command, environ = driver(os.environ, Path(manifest.MOUNT), Path(manifest.STATE))
        os.execve(command[0], command, environ)  # noqa: S606 - no shell is wanted
    except BadJobSpec as error:
        sys.stderr.write(f"{manifest.MOUNT}/{manifest.SPEC}: {error}\n")
        return JobExit.BAD_SPEC
    except (OSError, LaunchError) as error:
        sys.stderr.write(f"not started: {error}\n")
    return JobExit.FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
