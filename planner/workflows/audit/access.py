"""How clusters are reached for requests, and how a failed request becomes a diagnostic."""

import math
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from planner.config.secrets import resolve_all
from planner.kafka import run
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Cluster
from runtime.audit.ledger import AuditFailure, ClusterAccess, UnexpectedClusterId

GIVEN_UP_S = 3.0  # how long a cluster is waited for that a failover abandons
Answer = TypeVar("Answer")


def answered(question: Coroutine[Any, Any, Answer]) -> Answer:
    """Carries out a request. Failure says what to do. Another cluster than the pinned one is refused."""
    try:
        return run(question)
    except AuditFailure as failure:
        code = ExitCode.REFUSED if isinstance(failure, UnexpectedClusterId) else ExitCode.ERROR
        raise Failure(error(str(failure), failure.hint, exit=code)) from None


def cluster_access(clusters: Iterable[Cluster], given_up: str | None = None) -> dict[str, ClusterAccess]:
    """Returns how each cluster is reached, secrets resolved. Failure names every secret that is missing.

    `given_up` is a cluster that a failover abandons: it is waited for only briefly.
    """
    listed = list(clusters)
    resolved = resolve_all(listed)
    return {
        one.name: ClusterAccess(
            one.name,
            one.bootstrap,
            resolved[one.name].settings,
            id=one.id,
            at_most_s=GIVEN_UP_S if one.name == given_up else math.inf,
            token_command=resolved[one.name].token_command,
        )
        for one in listed
    }
