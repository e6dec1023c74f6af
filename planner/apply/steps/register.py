"""The registry's entries, written once the change they speak of is done."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from confluent_kafka import KafkaException, TopicCollection

from planner.apply.attempt import REQUEST_SECONDS
from planner.apply.hands import Hands
from planner.kafka import explain, topic_id_text
from planner.model.address import Address, Kind
from planner.model.outcome import DONE, Result, Verdict, failed
from planner.model.owned import ID, Owned
from planner.model.step import Disown, Own


def own(hands: Hands, steps: Sequence[Own]) -> dict[str, Verdict]:
    """A topic that this plan created, perhaps in an apply that was killed, has its id only now."""
    if (barred := hands.guard.before_request()) is not None:
        return {step.id: Verdict(Result.NOT_STARTED, barred) for step in steps}
    created = [step for step in steps if step.address.kind is Kind.TOPIC and ID not in step.entry.spec]
    ids, unread = _topic_ids(hands, {step.address.name for step in created})
    verdicts = {
        step.id: failed(f"the topic's id could not be read: {unread[step.address.name]}")
        for step in created
        if step.address.name in unread
    }
    known = [step for step in steps if step.id not in verdicts]
    entries = [_stamped(hands, step.entry, ids) for step in known]
    return {**verdicts, **_write(hands, known, own=entries)}


def disown(hands: Hands, steps: Sequence[Disown]) -> dict[str, Verdict]:
    return _write(hands, steps, disown=[step.address for step in steps])


def _topic_ids(hands: Hands, topics: Collection[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The ids, so that a topic recreated behind our back is recognised; and why some could not be read."""
    if not topics:
        return {}, {}
    answers = hands.client.describe_topics(TopicCollection(sorted(topics)), request_timeout=REQUEST_SECONDS)
    ids: dict[str, str] = {}
    unread: dict[str, str] = {}
    for name, answer in answers.items():
        try:
            ids[name] = topic_id_text(answer.result().topic_id)
        except KafkaException as failure:
            unread[name] = explain(failure)
    return ids, unread


def _stamped(hands: Hands, entry: Owned, ids: Mapping[str, str]) -> Owned:
    """What is known only now: by which plan, when, and the id of a topic that was created just before."""
    found = ids.get(entry.address.name) if entry.address.kind is Kind.TOPIC else None
    spec = entry.spec if found is None else {**entry.spec, ID: found}
    return replace(entry, spec=spec, plan=hands.plan_digest, at_ms=hands.now_ms())


def _write(
    hands: Hands,
    steps: Sequence[Own] | Sequence[Disown],
    own: Sequence[Owned] = (),
    disown: Sequence[Address] = (),
) -> dict[str, Verdict]:
    if (barred := hands.guard.before_request()) is not None:
        return {step.id: Verdict(Result.NOT_STARTED, barred) for step in steps}
    try:
        hands.registry.write(own=own, disown=disown)
    except (KafkaException, TimeoutError) as failure:
        return {step.id: failed(f"the registry was not written: {explain(failure)}") for step in steps}
    return {step.id: DONE for step in steps}
