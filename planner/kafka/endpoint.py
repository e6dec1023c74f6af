"""Where a cluster is and how to get in."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """Resolved: `settings` hold secrets, so they never appear in a representation of this value.

    `token_command` is the operator's command that prints OAUTHBEARER tokens.
    """

    cluster: str
    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_command: str | None = field(default=None, repr=False)
