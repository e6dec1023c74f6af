"""Creates and deletes ACL rules, and alters client quotas. All requests are idempotent at the broker.

A quota is done when every live broker shows it.
"""

from collections.abc import Sequence

from planner.apply.context import ApplyContext, refusal_is_final, send_with_retries, wait_while_missing
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
    set_steps = [step for step in steps if results[step.id] == DONE]
    missing = await wait_while_missing(context, lambda: _not_shown(context, set_steps))
    return results | {step_id: failed(why) for step_id, why in missing.items()}


async def _not_shown(context: ApplyContext, steps: Sequence[AlterQuota]) -> dict[str, str]:
    """Returns the steps whose limits a live broker does not show, each with a reason."""
    missing: dict[str, str] = {}
    try:
        for broker, connection in (await context.each_broker()).items() if steps else ():
            try:
                quotas = await read_quotas(context.client, connection)
            except (Closed, NoAnswer):
                continue  # a broker that is down reads the quotas when it starts again
            for step in steps:
                limits = quotas.get(step.entity, {})
                if any(limits.get(key) != value for key, value in step.wanted.items()):
                    missing[step.id] = f"broker {broker} does not show it yet"
    except ClusterFailure as failure:
        return {step.id: f"it was set, and can't be read again: {failure.explained}" for step in steps}
    return missing
