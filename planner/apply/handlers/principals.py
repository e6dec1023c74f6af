"""Creates and deletes ACL rules, and alters client quotas. All requests are idempotent at the broker.

A quota is done when every live broker shows it.
"""

import asyncio
import time
from collections.abc import Sequence

from planner.apply.context import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PROPAGATION_SECONDS,
    ApplyContext,
    refusal_is_final,
    send_with_retries,
)
from planner.kafka.failures import Closed, ClusterFailure, NoAnswer
from planner.kafka.principals import read_quotas
from planner.model.step import DONE, StepResult, failed
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.quotas import AlterQuota


async def change_acls(
    context: ApplyContext, steps: Sequence[CreateAcl] | Sequence[DeleteAcl]
) -> dict[str, StepResult]:
    """Creates the rules, or deletes exactly these rules."""
    return await send_with_retries(steps, context.send, refusal_is_final, context.guard)


async def alter_quota(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, StepResult]:
    """Sets and removes limits, and verifies them at the brokers."""
    results = await send_with_retries(steps, context.send, refusal_is_final, context.guard)
    return results | await _await_shown(context, [step for step in steps if results[step.id] == DONE])


async def _await_shown(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, StepResult]:
    """Waits until every live broker shows the limits: each takes them over on its own.

    Returns the failures of the steps that a broker does not show by the deadline.
    """
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    while steps:
        missing = await _not_shown(context, steps)
        over = time.monotonic() > deadline or await context.guard.stop_reason() is not None
        if not missing or over:
            return {step_id: failed(why) for step_id, why in missing.items()}
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    return {}


async def _not_shown(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, str]:
    """Returns the steps whose limits a live broker does not show, each with a reason."""
    missing: dict[str, str] = {}
    try:
        for broker, connection in (await context.each_broker()).items():
            try:
                quotas = await read_quotas(context.client, connection)
            except (Closed, NoAnswer):
                continue  # a broker that is down reads the quotas when it starts again
            for step in steps:
                wanted: dict[str, float | None] = {**step.set, **dict.fromkeys(step.unset)}
                limits = quotas.get(step.entity, {})
                if any(limits.get(key) != value for key, value in wanted.items()):
                    missing[step.id] = f"broker {broker} does not show it yet"
    except ClusterFailure as failure:
        return {step.id: f"it was set, and can't be read again: {failure.why}" for step in steps}
    return missing
