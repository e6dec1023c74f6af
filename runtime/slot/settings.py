"""The lane settings of a flow are in seconds, and their bounds already respect the flow's rpo."""

from dataclasses import dataclass

from runtime.contract.spec.jobspec import CopySettings, FlowSpec

_LATE = 0.8  # The fraction of the transaction timeout after which a lane aborts by itself.


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """The settings of a flow's lanes.

    `longest_s` bounds a transaction under load. It is at most half of the rpo, so that a record fetched at
    the beginning is committed within the rpo even when the end takes as long again.
    """

    longest_s: float
    idle_commit_s: float
    transaction_bytes: int
    transaction_timeout_ms: int
    request_bytes: int

    @property
    def late_s(self) -> float:
        """The age in seconds at which the lane aborts a transaction that is not written yet.

        It is below the transaction timeout: a broker that times a transaction out fences its producer.
        """
        return self.transaction_timeout_ms * _LATE / 1000


def lane_settings(copy: CopySettings, flow: FlowSpec) -> LaneSettings:
    """Returns the lane settings from the job's copy settings and the flow's rpo."""
    longest = copy.transaction_ms if flow.rpo_ms is None else min(copy.transaction_ms, flow.rpo_ms // 2)
    return LaneSettings(
        longest_s=max(longest, 1) / 1000,
        idle_commit_s=copy.tail_every_ms / 1000,
        transaction_bytes=copy.transaction_bytes,
        transaction_timeout_ms=copy.transaction_timeout_ms,
        request_bytes=copy.request_bytes,
    )
