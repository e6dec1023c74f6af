"""The output of `repl locate`: where a record is at the other side of a flow. Pure."""

from __future__ import annotations

from typing import assert_never

from runtime.contract.results.groups import LocatedRecord, LocateResult


def sentence(located: LocatedRecord) -> str:
    """Returns the sentence."""
    place = f"{located.topic}-{located.partition} at {located.cluster}"
    if located.file is not None:
        return _in_file(located, place)
    other_place = f"{located.other_topic}-{located.partition} at {located.other_cluster}"
    record = f"offset {located.offset} of {place}"
    match located.found:
        case LocateResult.EXACT:
            return f"{record} is offset {located.other_offset} of {other_place}."
        case LocateResult.NEXT if located.reverse:
            return (
                f"{record} was not copied by {located.flow}; the next record that was came from "
                f"offset {located.other_offset} of {other_place}."
            )
        case LocateResult.NEXT:
            return (
                f"{record} was not copied (it is no record, was aborted, compacted away, filtered or "
                f"quarantined); the next copied record is offset {located.other_offset} of {other_place}."
            )
        case LocateResult.END if located.other_offset is None:
            return f"{record} was not copied, and no later record either."
        case LocateResult.END:
            return (
                f"{record} was not copied, and no later record either; the next one will be at offset "
                f"{located.other_offset} of {other_place} or later."
            )
        case LocateResult.NOT_YET:
            side = located.other_cluster if located.reverse else located.cluster
            through = f"replicated up to offset {located.replicated_through} at {side}"
            return f"not yet: {record} is not copied; {located.flow} has {through}."
        case LocateResult.UNMAPPED if located.in_files:
            return f"unmapped: {record} is before the start of {located.flow}, which began at {located.low}."
        case LocateResult.UNMAPPED:
            begins = f"which begins at {located.low}"
            return f"unmapped: {record} is before the offset map of {located.flow}, {begins}."
        case LocateResult.REPLAYED:
            return f"{record} was replayed by salvage {_replayed(located, other_place)}"
        case LocateResult.NO_RECORD:
            return f"No record of {place} is as late as that."
        case other:
            assert_never(other)


def _in_file(located: LocatedRecord, place: str) -> str:
    where = f"record {located.record:,} of {located.file} at {located.other_cluster}"
    if located.found is LocateResult.EXACT:
        return f"offset {located.offset} of {place} is {where}."
    return (
        f"offset {located.offset} of {place} was not copied (it is no record, was aborted, compacted away, "
        f"filtered or quarantined); the next copied record, offset {located.other_offset}, is {where}."
    )


def _replayed(located: LocatedRecord, other_place: str) -> str:
    if located.reverse:
        return f"from offset {located.other_offset} of {other_place}."
    if located.other_offset is None:
        return f"into {other_place}; a longer --timeout finds the offset there."
    return f"to offset {located.other_offset} of {other_place}."
