"""Builds what a node of Kubernetes needs: `python -m tests.kubernetes.build`, as root on Debian.

The daemons and kubectl come from the module k8s.io/kubernetes of daemons/go.mod, the images from the target
`jobs` of the Dockerfile. What is there already is not built again; the sources of the product are copied into
the image each time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.node import BINARIES, IMAGES, JOBS, PAUSE, VERSION

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
}
_BASE = "repl-jobs"  # of `make image`
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
    _pause()
    _jobs()


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
    if subprocess.run(("buildah", "inspect", _BASE), capture_output=True, check=False).returncode:
        subprocess.run(("make", "--no-print-directory", "image"), check=True, cwd=_ROOT)
    container = _run("buildah", "from", "--pull=false", _BASE)
    for package in ("runtime", "planner"):
        _run("buildah", "copy", container, str(_ROOT / package), f"{_SITE}/{package}")
    _commit(container, JOBS)


def _commit(container: str, name: str) -> None:
    _run("buildah", "commit", "--quiet", "--rm", container, name)
    IMAGES[name].unlink(missing_ok=True)
    _run("buildah", "push", "--quiet", name, f"docker-archive:{IMAGES[name]}:{name}")


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
