"""Pure: the history of a cluster, folded from the journal's events.

An apply writes `started`, then its steps in chunks (`planned`), `sent` before and `ended` after each
batch, and `finished`. An apply that was killed simply has no more events.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from planner.model.applied import Applied, StepResult
from planner.model.step import Step
from planner.store.codec import decode, encode

# Well below the 1 MB that a client sends in one record by default.
RECORD_BYTES = 256 * 1024

DecodeStep = Callable[[Mapping[str, Any]], Step]


def started(applied: Applied) -> bytes:
    return encode(
        {
            "event": "started",
            "topology": applied.topology,
            "mode": applied.mode,
            "plan": applied.plan,
            "user": applied.user,
            "host": applied.host,
            "pid": applied.pid,
            "git": applied.git,
            "clusters": dict(applied.clusters),
            "total": applied.total,
            "at": applied.started_ms,
        }
    )


def planned(steps: Iterable[Mapping[str, Any]]) -> Iterable[bytes]:
    return (encode({"event": "planned", "steps": some}) for some in _pieces(steps))


def sent(step_ids: Iterable[str]) -> Iterable[bytes]:
    return (encode({"event": "sent", "steps": some}) for some in _pieces(step_ids))


def ended(results: Mapping[str, StepResult]) -> Iterable[bytes]:
    told = ((step_id, [one.result, one.why, round(one.seconds, 3)]) for step_id, one in results.items())
    return (encode({"event": "ended", "steps": dict(some)}) for some in _pieces(told))


def _pieces(items: Iterable[Any]) -> Iterable[list[Any]]:
    """As many together as one record holds."""
    piece: list[Any] = []
    size = 0
    for item in items:
        weight = len(msgspec.json.encode(item))
        if piece and size + weight > RECORD_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += weight
    if piece:
        yield piece


def finished(result: str, at_ms: int) -> bytes:
    return encode({"event": "finished", "result": result, "at": at_ms})


def fold(records: Iterable[tuple[bytes, bytes]], decode_step: DecodeStep) -> tuple[Applied, ...]:
    """Every apply in the log, oldest first. Events of an apply whose beginning is gone are passed over."""
    applies: dict[str, Applied] = {}
    for key, value in records:
        apply_id = key.decode()
        event = decode("the history", value)
        if event["event"] == "started":
            applies[apply_id] = _begun(apply_id, event)
        elif apply_id in applies:
            applies[apply_id] = _after(applies[apply_id], event, decode_step)
    return tuple(applies.values())


def _begun(apply_id: str, event: Mapping[str, Any]) -> Applied:
    return Applied(
        id=apply_id,
        topology=event["topology"],
        mode=event["mode"],
        plan=event["plan"],
        user=event["user"],
        host=event["host"],
        pid=event["pid"],
        git=event["git"],
        clusters=event["clusters"],
        total=event["total"],
        started_ms=event["at"],
    )


def _after(applied: Applied, event: Mapping[str, Any], decode_step: DecodeStep) -> Applied:
    match event["event"]:
        case "planned":
            return replace(applied, steps=(*applied.steps, *map(decode_step, event["steps"])))
        case "sent":
            unanswered = dict.fromkeys(event["steps"], StepResult("sent", "the answer was not noted"))
            return replace(applied, outcomes={**applied.outcomes, **unanswered})
        case "ended":
            results = {step_id: StepResult(*told) for step_id, told in event["steps"].items()}
            return replace(applied, outcomes={**applied.outcomes, **results})
        case "finished":
            return replace(applied, result=event["result"], finished_ms=event["at"])
        case _:
            return applied
