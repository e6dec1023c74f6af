"""Pure: is each cluster the one that the topology means?"""

from collections import defaultdict
from collections.abc import Mapping

from planner.model.diagnostic import Diagnostic, ExitCode, error, warning
from planner.model.topology import Cluster


def wrong_clusters(clusters: Mapping[str, Cluster], ids: Mapping[str, str]) -> list[Diagnostic]:
    """A refusal for each cluster whose id is not the pinned one."""
    return [
        error(
            f"{name} is pinned to cluster id {clusters[name].id}, but {clusters[name].bootstrap} "
            f"is cluster {found or 'without an id'}",
            f"correct the bootstrap of {name}, or its id if the cluster was replaced on purpose",
            source=clusters[name].source,
            code="wrong-cluster",
            exit=ExitCode.REFUSED,
        )
        for name, found in ids.items()
        if clusters[name].id is not None and clusters[name].id != found
    ]


def same_cluster(ids: Mapping[str, str]) -> list[Diagnostic]:
    """A warning where two names are one cluster."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, found in sorted(ids.items()):
        if found:
            names[found].append(name)
    return [
        warning(
            f"{' and '.join(alike)} are the same cluster (id {found})",
            "look at their bootstrap addresses: a flow between them would copy a cluster into itself",
            code="same-cluster",
        )
        for found, alike in names.items()
        if len(alike) > 1
    ]
