"""Tells which parts of a job spec take effect only after a restart of the job.

A spec may reach a running job by a record. No record decides which clusters and stores a job trusts.
"""

from collections.abc import Mapping

from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec


def not_started_with(started: Mapping[str, ClusterSpec], spec: JobSpec) -> list[str]:
    """Returns the keys that take effect only after a restart: they change which clusters the job trusts.

    `started` are the clusters of the spec that the job was started with. A cluster that is not among them is
    such a key, and so is another address, pin or client setting of one that is.
    """
    changed: list[str] = []
    for name, cluster in sorted(spec.clusters.items()):
        before = started.get(name)
        if before is None:
            changed.append(f"clusters.{name}")
            continue
        changed += [
            f"clusters.{name}.{key}"
            for key in ("bootstrap", "id")
            if getattr(before, key) != getattr(cluster, key)
        ]
        keys = sorted({*before.client, *cluster.client})
        changed += [
            f"clusters.{name}.client.{key}"
            for key in keys
            if before.client.get(key) != cluster.client.get(key)
        ]
    return changed


def regrouped(before: JobSpec, after: JobSpec) -> list[str]:
    """Returns the flows that need a restart, because no slot of the running job can copy them.

    A slot evaluates the same transform, or none, for as long as it runs. No record decides where a job reads
    or writes: a job with files uses only the folders that it was started with, and the settings of stores
    that it had then. Nor does a record change what a job may read of records, or the registry that it asks: a
    flow syncs schemas only with the schema registries that the job was started with.
    """
    reached = [flow.reached for flow in before.flows]
    transforms = {flow.name: flow.transform for flow in before.flows}
    if any(flow.folder is not None for flow in (*before.flows, *after.flows)):
        return [
            flow.name
            for flow in after.flows
            if flow.reached not in reached or transforms.get(flow.name) != flow.transform
        ]
    without = any(transform is None for transform in transforms.values())
    others = {name for name, registry in after.registries.items() if before.registries.get(name) != registry}
    return [
        flow.name
        for flow in after.flows
        if transforms.get(flow.name) != flow.transform
        or (flow.schemas.sync and not others.isdisjoint((flow.source, flow.destination)))
        or (flow.name not in transforms and flow.transform is None and not without)
    ]
