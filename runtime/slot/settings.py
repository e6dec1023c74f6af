"""A flow's settings as its lanes use them: seconds, and bounds that already respect its rpo."""

from dataclasses import dataclass

from runtime.contract.spec.jobspec import CopySettings, FlowSpec

_LATE = 0.8  # of the time after which brokers give up on a transaction


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """`longest_s` bounds a transaction under load: half of the rpo, so that a record fetched at its
    beginning is in within the rpo even when the end takes as long again.
    """

    longest_s: float
    tail_every_s: float
    transaction_bytes: int
    transaction_timeout_ms: int
    request_bytes: int

    @property
    def late_s(self) -> float:
        """A transaction that is not written by then is aborted here: brokers who give up on one take its
        writer for dead.
        """
        return self.transaction_timeout_ms * _LATE / 1000


def lane_settings(copy: CopySettings, flow: FlowSpec) -> LaneSettings:
    longest = copy.transaction_ms if flow.rpo_ms is None else min(copy.transaction_ms, flow.rpo_ms // 2)
    return LaneSettings(
        longest_s=max(longest, 1) / 1000,
        tail_every_s=copy.tail_every_ms / 1000,
        transaction_bytes=copy.transaction_bytes,
        transaction_timeout_ms=copy.transaction_timeout_ms,
        request_bytes=copy.request_bytes,
    )
