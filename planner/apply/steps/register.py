"""The registry's entries, written once the change they speak of is done."""

from collections.abc import Sequence
from dataclasses import replace

from confluent_kafka import KafkaException

from planner.apply.hands import Hands
from planner.kafka import explain
from planner.model.address import Kind
from planner.model.outcome import DONE, Result, Verdict, failed
from planner.model.owned import Owned
from planner.model.step import Disown, Own


def own(hands: Hands, steps: Sequence[Own]) -> dict[str, Verdict]:
    return _write(hands, steps, [_stamped(hands, step.entry) for step in steps], ())


def disown(hands: Hands, steps: Sequence[Disown]) -> dict[str, Verdict]:
    return _write(hands, steps, (), steps)


def _stamped(hands: Hands, entry: Owned) -> Owned:
    """What is known only now: by which plan, when, and the id of a topic that was created just before."""
    spec = dict(entry.spec)
    if entry.address.kind is Kind.TOPIC and entry.address.name in hands.topic_ids:
        spec["id"] = hands.topic_ids[entry.address.name]
    return replace(entry, spec=spec, plan=hands.plan_digest, at_ms=hands.now_ms())


def _write(
    hands: Hands, steps: Sequence[Own] | Sequence[Disown], entries: Sequence[Owned], gone: Sequence[Disown]
) -> dict[str, Verdict]:
    if (barred := hands.guard.before_request()) is not None:
        return {step.id: Verdict(Result.NOT_STARTED, barred) for step in steps}
    try:
        hands.registry.write(own=entries, disown=[step.address for step in gone])
    except (KafkaException, TimeoutError) as failure:
        return {step.id: failed(f"the registry was not written: {explain(failure)}") for step in steps}
    return {step.id: DONE for step in steps}
