"""Creates and deletes ACL rules, and alters client quotas. All requests are idempotent at the broker.

A quota is done when every live broker shows it.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AclBindingFilter

from planner.apply.context import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PROPAGATION_SECONDS,
    REQUEST_SECONDS,
    ApplyContext,
    error_is_final,
    send_with_retries,
)
from planner.kafka import acl_parts, explain
from planner.kafka.admin_requests import LimitsChange, alter_quotas, quotas_at_each_broker
from planner.model.step import DONE, RequestResult, failed
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.quotas import AlterQuota


def create_acl(context: ApplyContext, steps: Sequence[CreateAcl]) -> dict[str, RequestResult]:
    """Creates the rules."""

    def send(some: Sequence[CreateAcl]) -> Mapping[str, "Future[None]"]:
        wanted = {step.id: AclBinding(*acl_parts(step.rule)) for step in some}
        futures = context.client.create_acls(list(set(wanted.values())), request_timeout=REQUEST_SECONDS)
        return {step_id: futures[binding] for step_id, binding in wanted.items()}

    return send_with_retries(steps, send, error_is_final, context.guard)


def delete_acl(context: ApplyContext, steps: Sequence[DeleteAcl]) -> dict[str, RequestResult]:
    """Deletes exactly these rules."""

    def send(some: Sequence[DeleteAcl]) -> Mapping[str, "Future[object]"]:
        wanted = {step.id: AclBindingFilter(*acl_parts(step.rule)) for step in some}
        futures = context.client.delete_acls(list(set(wanted.values())), request_timeout=REQUEST_SECONDS)
        return {step_id: futures[binding] for step_id, binding in wanted.items()}

    return send_with_retries(steps, send, error_is_final, context.guard)


def alter_quota(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, RequestResult]:
    """Sets and removes limits, and verifies them at the brokers."""

    def send(some: Sequence[AlterQuota]) -> Mapping[str, "Future[None]"]:
        changes = [LimitsChange(step.entity, step.set, step.unset) for step in some]
        refusals = alter_quotas(context.endpoint, changes)
        return {step.id: _answered(refusal) for step, refusal in zip(some, refusals, strict=True)}

    results = send_with_retries(steps, send, error_is_final, context.guard)
    return results | _await_shown(context, [step for step in steps if results[step.id] == DONE])


def _answered(refusal: KafkaException | None) -> "Future[None]":
    future: Future[None] = Future()
    if refusal is None:
        future.set_result(None)
    else:
        future.set_exception(refusal)
    return future


def _await_shown(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, RequestResult]:
    """Waits until every live broker shows the limits: each takes them over on its own.

    Returns the failures of the steps that a broker does not show by the deadline.
    """
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    while steps:
        missing = _not_shown(context, steps)
        over = time.monotonic() > deadline or context.guard.stop_reason() is not None
        if not missing or over:
            return {step_id: failed(why) for step_id, why in missing.items()}
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    return {}


def _not_shown(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, str]:
    """Returns the steps whose limits a live broker does not show, each with a reason."""
    try:
        brokers = quotas_at_each_broker(context.endpoint)
    except KafkaException as failure:
        return {step.id: f"it was set, and can't be read again: {explain(failure)}" for step in steps}
    missing: dict[str, str] = {}
    for step in steps:
        wanted: dict[str, float | None] = {**step.set, **dict.fromkeys(step.unset)}
        for broker, quotas in brokers.items():
            limits = quotas.get(step.entity, {})
            if any(limits.get(key) != value for key, value in wanted.items()):
                missing[step.id] = f"broker {broker} does not show it yet"
    return missing
