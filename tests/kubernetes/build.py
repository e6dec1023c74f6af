"""Builds what a node of Kubernetes needs: `python -m tests.kubernetes.build`, as root on Debian.

The daemons and kubectl come from the module k8s.io/kubernetes of daemons/go.mod, the images from the target
`jobs` of the Dockerfile. helm and kubeconform check the chart, by schemas of the OpenAPI specification in the
same module. What is there already is not built again; the sources of the product are copied into the image
each time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.node import (
    BINARIES,
    GIT,
    HELM,
    IMAGES,
    JOBS,
    KUBECONFORM,
    PAUSE,
    POD_MONITOR,
    SCHEMAS,
    VERSION,
)

_DAEMONS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    **{
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
            "kubelet",
            "kubectl",
        )
    },
}
_CHECKERS = {HELM: "helm.sh/helm/v3/cmd/helm", KUBECONFORM: "github.com/yannh/kubeconform/cmd/kubeconform"}
_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_MODULE = Path(__file__).parent / "daemons"
_ROOT = Path(__file__).parents[2]
_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "busybox": "busybox-static",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/sbin/sshd": "openssh-server",
}
_BASE = "repl-jobs"  # of `make image`, which is built from this one:
_DEBIAN = "docker.io/library/debian:bookworm-slim"
_SITE = "/opt/venv/lib/python3.11/site-packages"
_STAMP = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def main() -> None:
    """Builds and installs what is missing."""
    BINARIES.mkdir(parents=True, exist_ok=True)
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if missing:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)
    for name in _DAEMONS:
        if not (BINARIES / name).exists():
            _build(name)
    for program, package in _CHECKERS.items():
        if not program.exists():
            _install(program, package)
    if not SCHEMAS.exists():
        _describe_resources()
    _pause()
    _jobs()
    _git()


def _build(name: str) -> None:
    print(f"Building {name} {VERSION} ...", file=sys.stderr, flush=True)
    major, minor, _ = VERSION.split(".")
    stamp = [f"-X {package}.gitVersion=v{VERSION}" for package in _STAMP]
    stamp += [f"-X {_STAMP[0]}.gitMajor={major}", f"-X {_STAMP[0]}.gitMinor={minor}"]
    built = BINARIES / f".{name}"
    command = (
        "nice",
        "-n",
        "15",
        "go",
        "build",
        "-p",
        "2",
        "-trimpath",
        "-ldflags",
        " ".join(["-s -w", *stamp]),
    )
    subprocess.run(
        (*command, "-o", str(built), _DAEMONS[name]),
        check=True,
        cwd=_MODULE,
        env={**os.environ, "CGO_ENABLED": "0"},
    )
    built.replace(BINARIES / name)


def _install(program: Path, package: str) -> None:
    name, _, version = program.name.rpartition("-")
    with tempfile.TemporaryDirectory(dir=BINARIES) as folder:
        command = ("nice", "-n", "15", "go", "install", "-p", "2", "-trimpath", f"{package}@v{version}")
        environment = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        subprocess.run(command, check=True, env=environment)
        (Path(folder) / name).replace(program)


def _describe_resources() -> None:
    """Writes the schema of each kind, as kubeconform looks for it, and the definition of a PodMonitor."""
    downloaded = json.loads(_run("go", "mod", "download", "-json", _OPERATOR))
    crds = Path(downloaded["Dir"]) / "example" / "prometheus-operator-crd"
    text = (crds / "monitoring.coreos.com_podmonitors.yaml").read_text()
    POD_MONITOR.write_text(text)
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    sources = subprocess.run(
        ("go", "list", "-m", "-f={{.Dir}}", "k8s.io/kubernetes"),
        cwd=_MODULE,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    api = json.loads((Path(sources) / "api" / "openapi-spec" / "swagger.json").read_text())["definitions"]
    definitions = {name: _strict(definition) for name, definition in api.items()}
    with tempfile.TemporaryDirectory(dir=BINARIES) as folder:
        written = Path(folder) / "schemas"
        written.mkdir()
        monitor = _strict(version["schema"]["openAPIV3Schema"])
        (written / "podmonitor-monitoring-v1.json").write_text(json.dumps(monitor))
        (written / "definitions.json").write_text(json.dumps({"definitions": definitions}))
        for name, definition in api.items():
            for kind in definition.get("x-kubernetes-group-version-kind", ()):
                group = kind["group"].partition(".")[0]
                words = filter(None, (kind["kind"].lower(), group, kind["version"]))
                reference = {"$ref": f"definitions.json#/definitions/{name}"}
                (written / f"{'-'.join(words)}.json").write_text(json.dumps(reference))
        written.rename(SCHEMAS)


def _strict(schema: Any) -> Any:
    """Returns a schema that refuses unknown fields, as the API server does with `--validate=strict`."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    strict = {key: _strict(part) for key, part in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        strict.setdefault("additionalProperties", False)
    return strict


def _pause() -> None:
    """Makes the image whose process holds the namespaces of a pod."""
    if IMAGES[PAUSE].exists():
        return
    container = _run("buildah", "from", "scratch")
    busybox = shutil.which("busybox")
    assert busybox is not None
    _run("buildah", "copy", container, busybox, "/busybox")
    _run("buildah", "config", "--entrypoint", '["/busybox", "sleep", "2147483647"]', container)
    _commit(container, PAUSE)


def _jobs() -> None:
    """Makes the image of jobs: that of `make image`, with the sources of this checkout."""
    if not _is_built(_BASE):
        subprocess.run(("make", "--no-print-directory", "image"), check=True, cwd=_ROOT)
    container = _run("buildah", "from", "--pull=false", _BASE)
    for package in ("runtime", "planner"):
        _run("buildah", "copy", container, str(_ROOT / package), f"{_SITE}/{package}")
    _commit(container, JOBS)


def _git() -> None:
    """Makes the image that clones a topology. It has no user of the number that the chart's pods have."""
    if IMAGES[GIT].exists():
        return
    container = _run("buildah", "from", "--pull=false", _DEBIAN)
    install = "apt-get update -qq && apt-get install -qq -y --no-install-recommends git openssh-client"
    _run("buildah", "run", "--isolation=chroot", container, "--", "sh", "-c", install)
    _commit(container, GIT)


def _is_built(image: str) -> bool:
    return (
        subprocess.run(
            ("buildah", "inspect", "--type=image", image), capture_output=True, check=False
        ).returncode
        == 0
    )


def _commit(container: str, name: str) -> None:
    _run("buildah", "commit", "--quiet", "--rm", container, name)
    IMAGES[name].unlink(missing_ok=True)
    _run("buildah", "push", "--quiet", name, f"docker-archive:{IMAGES[name]}:{name}")


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
