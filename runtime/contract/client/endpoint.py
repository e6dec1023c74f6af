"""How a cluster is reached, with its secrets resolved."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """Says how a cluster is reached. `settings` are resolved and may hold secrets: they are never shown.

    `token_command` is the operator's command that prints OAUTHBEARER tokens. `id`: a cluster with another id
    is refused where it is read. `at_most_s` bounds the timeout of a cluster that a failover abandons.
    """

    cluster: str
    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_command: str | None = field(default=None, repr=False)
    id: str | None = None
    at_most_s: float = math.inf

    def within(self, seconds: float) -> float:
        """Returns the timeout, limited to `at_most_s`."""
        return min(seconds, self.at_most_s)
