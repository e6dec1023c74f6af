"""This module says what each partition state means, and the next step: for status, apply, docs and alerts.

`next` is empty where nothing is to be done. It is a command alone, or says what to do first, with the
placeholders {flow}, {topic} and {partition}.
"""

from typing import NamedTuple

from runtime.contract.records.status import PartitionState as S
from runtime.contract.views.status_view import DOWN, STALLED, UNKNOWN

_GO_ON = "repl resume {flow} --accept-loss"
_PAST_IT = (
    "go past the record with restart_from: {{offsets: {{{topic}: {{{partition}: OFFSET}}}}}} in the flow,"
    " then repl apply"
)


class Advice(NamedTuple):
    means: str
    next: str = ""


STATES: dict[str, Advice] = {
    S.STARTING: Advice("its slot is coming up, or it is being handed from one slot to another"),
    S.COPYING: Advice("records move; there is lag"),
    S.CAUGHT_UP: Advice("the destination has all that the source has committed"),
    S.PAUSED: Advice("the flow's `state` is `paused`, or another job has taken it", "repl resume {flow}"),
    S.RETRYING: Advice(
        "something fails, and is tried again with growing pauses; the reason stands beside it"
    ),
    S.BLOCKED_AT_SOURCE: Advice(
        "a transaction at the source is open for long: no reader gets what lies behind it"
    ),
    S.UNSCHEDULED: Advice(
        "Spark has no free core for its slot", "give the job cores, or fewer slots and then repl apply"
    ),
    S.RECORD_TOO_LARGE: Advice(
        "a record is larger than the destination takes",
        "raise max.message.bytes of the mirror (and the brokers' limits), then repl apply; it is tried again"
        " each minute",
    ),
    S.RECORD_REFUSED: Advice(
        "the destination refuses a record: a timestamp too far ahead, a null key on a compacted topic",
        f"change the mirror's settings, then repl apply; or {_PAST_IT}",
    ),
    S.UNSUPPORTED_VERSION: Advice(
        "a broker's version of Kafka lacks a request that the copy needs (`why` names it)",
        "upgrade the broker; repl doctor CLUSTER shows what each version can do; it is tried again each"
        " minute",
    ),
    S.RECORD_CORRUPT: Advice(
        "a batch at the source does not match its checksum, or can't be read",
        f"check the source's disk: another replica may have the record whole; or {_PAST_IT}",
    ),
    S.RECORD_INVALID: Advice(
        "a record does not match the format of the flow's transform, or an expression of it fails on it"
        " (`why` names the offset)",
        f"correct the flow's transform, then repl apply; or {_PAST_IT}",
    ),
    S.DATA_LOSS: Advice(
        "the source deleted records before they were copied (retention is shorter than the lag was)", _GO_ON
    ),
    S.RECREATED: Advice("a topic was deleted and made again under its name, at either side", _GO_ON),
    S.DIVERGED: Advice("one side's log was cut (an unclean election), so the two logs differ", _GO_ON),
    S.LEDGER_MISSING: Advice(
        "there is no progress for it, though there should be; or its record, or the ledger, cannot be read"
        " (`why` says so)",
        "restore __repl.ledger, or say where to begin with a new restart_from: {{offsets: …}} that names"
        " every partition, then repl apply; starting over without offsets would double its records",
    ),
    S.SOURCE_DELETED: Advice(
        "the topic is gone at the source; its mirror stays",
        "take the topic out of the flow, or delete its mirror with on_source_delete: delete; then repl apply",
    ),
    S.PROMOTED: Advice(
        "the flow, or this topic of it, ended with all records copied; the destination is writable",
    ),
    S.FAILED_OVER: Advice("the source was lost; the flow ended with the records that had arrived"),
    DOWN: Advice("no job copies it: the job died, was stopped, or never ran", "repl apply"),
    STALLED: Advice(
        "its job says that it copies, records are waiting, and for 30 s nothing was committed",
        "read the log of its job",
    ),
    UNKNOWN: Advice(
        "the destination does not answer, so nothing is known of it; or the source does not, and all that is"
        " known is that the job had caught up",
    ),
}


def next_step(state: str, flow: str, topic: str, partition: int | str) -> str:
    """Returns the next step, a command alone where one command is enough; "" where nothing is to be done."""
    return STATES[state].next.format(flow=flow, topic=topic, partition=partition)
