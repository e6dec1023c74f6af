"""Creates and deletes ACL rules. Both requests are idempotent at the broker."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka.admin import AclBinding, AclBindingFilter

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, error_is_final, send_with_retries
from planner.kafka import acl_parts
from planner.model.step import CreateAcl, DeleteAcl, RequestResult


def create(context: ApplyContext, steps: Sequence[CreateAcl]) -> dict[str, RequestResult]:
    """Creates the rules."""

    def send(some: Sequence[CreateAcl]) -> Mapping[str, "Future[None]"]:
        wanted = {step.id: AclBinding(*acl_parts(step.rule)) for step in some}
        futures = context.client.create_acls(list(set(wanted.values())), request_timeout=REQUEST_SECONDS)
        return {step_id: futures[binding] for step_id, binding in wanted.items()}

    return send_with_retries(steps, send, error_is_final, context.guard)


def delete(context: ApplyContext, steps: Sequence[DeleteAcl]) -> dict[str, RequestResult]:
    """Deletes exactly these rules."""

    def send(some: Sequence[DeleteAcl]) -> Mapping[str, "Future[object]"]:
        wanted = {step.id: AclBindingFilter(*acl_parts(step.rule)) for step in some}
        futures = context.client.delete_acls(list(set(wanted.values())), request_timeout=REQUEST_SECONDS)
        return {step_id: futures[binding] for step_id, binding in wanted.items()}

    return send_with_retries(steps, send, error_is_final, context.guard)
