"""This module chooses the launcher of a job. A new launcher is one line here."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from runtime.contract.launching import Launcher
from runtime.contract.spec.launch import LaunchSpec
from runtime.launch.kubernetes import KubernetesLauncher
from runtime.launch.supervision.supervised import SupervisedLauncher


def launcher_for(launch: LaunchSpec, home: Path, destination: str = "") -> Launcher:
    """Returns the launcher of a job, whose destination has this cluster id; "" to read only.

    `home` is the folder where this machine keeps the state of jobs; their secrets come from the environment.
    """
    match launch.launcher:
        case "local" | "standalone" | "yarn":
            return SupervisedLauncher(home)
        case "kubernetes":
            return KubernetesLauncher(launch, destination)
        case other:
            assert_never(other)
