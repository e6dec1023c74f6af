"""Divides the slots of a job among its flows: a flow with a transform has slots of its own. It is pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.transform import TransformSpec

WITHOUT = ""  # stands for all flows without a transform


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """A SlotLayout says, for each slot in order, which flow with a transform it copies, or WITHOUT.

    It is fixed for the life of a job, because a slot evaluates one query from its start to its end.
    """

    by_slot: tuple[str, ...]
    transforms: dict[str, TransformSpec]

    def transform(self, slot: int) -> TransformSpec | None:
        """Returns the transform that the slot evaluates."""
        return self.transforms.get(self.by_slot[slot])

    def slots_of(self, flow: str) -> list[int]:
        """Returns the slots that may copy the flow."""
        owner = flow if flow in self.transforms else WITHOUT
        return [slot for slot, name in enumerate(self.by_slot) if name == owner]


NO_SLOTS = SlotLayout((), {})  # of a job into files: its flows submit their tasks round by round


def slot_layout(flows: Sequence[FlowSpec], slots: int) -> SlotLayout:
    """Divides at least `slots` slots among the flows: each group has one, and the rest goes round.

    Where there are fewer slots than groups, there are as many as groups: those that get no core are shown as
    unscheduled.
    """
    transforms = {flow.name: flow.transform for flow in flows if flow.transform is not None}
    groups = [WITHOUT] if len(transforms) < len(flows) or not flows else []
    groups += sorted(transforms)
    total = max(slots, len(groups))
    return SlotLayout(tuple(sorted(groups[slot % len(groups)] for slot in range(total))), transforms)
