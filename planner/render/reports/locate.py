"""The output of `repl locate`: where a record is on the other side, as a sentence and as JSON."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from runtime.contract.views.groups_view import LocatedRecord, LocateResult


def as_text(located: LocatedRecord) -> str:
    """Returns the sentence."""
    here = f"{located.topic}-{located.partition} at {located.cluster}"
    there = f"{located.other_topic}-{located.partition} at {located.other_cluster}"
    record = f"offset {located.offset} of {here}"
    match located.found:
        case LocateResult.EXACT:
            return f"{record} is offset {located.other_offset} of {there}."
        case LocateResult.NEXT if located.reverse:
            return (
                f"{record} did not come over {located.flow}; the first one behind it that did came from "
                f"offset {located.other_offset} of {there}."
            )
        case LocateResult.NEXT:
            return (
                f"{record} was not copied (it is no record, was aborted, compacted away, or not to be "
                f"copied); the first one behind it that was is offset {located.other_offset} of {there}."
            )
        case LocateResult.END:
            return (
                f"{record} was not copied, and nothing behind it either; what comes next will be at offset "
                f"{located.other_offset} of {there} or behind."
            )
        case LocateResult.NOT_YET:
            return f"not yet: {record} is not copied; {_through(located)}."
        case LocateResult.UNMAPPED:
            begins = f"which begins at {located.low}"
            return f"unmapped: {record} is below what {located.flow} keeps a map of, {begins}."
        case LocateResult.REPLAYED:
            return f"{record} was replayed by salvage {_replayed(located, there)}"
        case LocateResult.NO_RECORD:
            return f"No record of {here} is as late as that."
        case other:
            assert_never(other)


def _replayed(located: LocatedRecord, there: str) -> str:
    if located.reverse:
        return f"from offset {located.other_offset} of {there}."
    if located.other_offset is None:
        return f"into {there}; a longer --timeout finds the offset there."
    return f"to offset {located.other_offset} of {there}."


def as_json(located: LocatedRecord) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(located)
    return document


def _through(located: LocatedRecord) -> str:
    side = located.other_cluster if located.reverse else located.cluster
    return f"{located.flow} has replicated up to offset {located.replicated_through} at {side}"
