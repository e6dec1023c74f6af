"""What the steps of an apply use beside Kafka, for applies that start no job and restore nothing."""

from collections.abc import Sequence
from typing import Any

from planner.apply.context import ApplyTools
from planner.kafka import ClusterEndpoint
from planner.model.step import StepResult, failed
from planner.plan.steps.restores import RestoreStep
from runtime.contract.launching import Launcher, LaunchError
from runtime.contract.spec.launch import LaunchSpec


def no_launchers(launch: LaunchSpec, _destination: str) -> Launcher:
    """Refuses every launch."""
    raise LaunchError(f"nothing here can start a job with launcher {launch.launcher}", "use repl apply")


async def no_restore(_endpoint: ClusterEndpoint, steps: Sequence[RestoreStep]) -> dict[str, StepResult]:
    """Refuses every restore."""
    return {step.id: failed("nothing here can restore a backup") for step in steps}


def tools(**more: Any) -> ApplyTools:
    """These tools, and none else."""
    given: dict[str, Any] = {
        "launchers": no_launchers,
        "restore": no_restore,
        "registries": {},
        "wait": True,
        "on_wait": lambda _step, _what: None,
    }
    return ApplyTools(**given | more)
