"""Prints what a Kubernetes cluster needs for the jobs of a topology."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml

from planner.graph.jobs import launch_spec
from planner.model.diagnostic import Failure, error
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import load_and_lint

if TYPE_CHECKING:
    from runtime.launch.manifest import Resource


def rights_resources(request: TopologyRequest) -> "list[Resource]":
    """Returns the accounts and roles of the jobs on Kubernetes. Failure where no job runs there."""
    from runtime.launch.manifest import namespace_of, rights, service_account_of

    topology = load_and_lint(request).topology
    launches = [launch_spec(job) for job in topology.jobs.values()]
    accounts = {
        (namespace_of(launch), service_account_of(launch)): launch
        for launch in launches
        if launch.launcher == "kubernetes"
    }
    if not accounts:
        raise Failure(
            error("no job of this topology has launcher: kubernetes", "add it to a job: jobs.JOB.launcher")
        )
    return [resource for _, launch in sorted(accounts.items()) for resource in rights(launch)]


def as_yaml(resources: "Sequence[Resource]") -> str:
    """Returns resources as YAML documents, as kubectl reads them."""
    return yaml.safe_dump_all(resources, explicit_start=True, sort_keys=False)
