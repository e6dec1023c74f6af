"""Defines how far the waves of cutovers are: a part of `repl status`, and the result of `repl cutover`.

The field names are those of `--json`: they are only ever added.
"""

from enum import StrEnum

import msgspec


class WaveState(StrEnum):
    """waiting: producers write at the source. fenced: they are stopped. moved: its topics are promoted.

    returning: what is new at the destination is copied back. unknown: the topology promotes its topics, and
    the destination does not answer.
    """

    WAITING = "waiting"
    FENCED = "fenced"
    MOVED = "moved"
    RETURNING = "returning"
    UNKNOWN = "unknown"


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """Says what clients still do with a topic at the source after it has moved.

    `records` were written there since; `producers` are the ids that may have written them, `groups` those
    with members.
    """

    topic: str
    records: int
    producers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class WaveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the progress of one wave. `left` counts the records that are not copied yet, None: not known.

    `pause_ms`: how long nobody could write its topics: from the fence to the end of the promotion, or until
    now. None where no fence says when that began. `fence` says what of the fence is at the source, whatever
    the key `fenced` says; `state` follows from that.
    """

    cutover: str
    wave: str
    state: WaveState
    topics: tuple[str, ...]
    left: int | None
    gate: str
    pause_ms: int | None = None
    fence: str = ""
    stragglers: tuple[Straggler, ...] = ()
