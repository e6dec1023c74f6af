"""Configures subjects of schema registries and registers schemas. All requests are idempotent."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from planner.apply.context import ApplyContext
from planner.diff.schemas import COMPATIBILITY, MODE
from planner.model.step import DONE, Result, StepResult, failed
from planner.plan.steps.schemas import ConfigureSubject, RegisterSchemas
from runtime.contract.spec.schemas import SchemaSync
from runtime.schemas.client import NotInRegistry, RegistryRefused, RegistryUnavailable
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied

S = TypeVar("S", ConfigureSubject, RegisterSchemas)


async def configure(context: ApplyContext, steps: Sequence[ConfigureSubject]) -> dict[str, StepResult]:
    """Sets the compatibility and the mode of subjects."""

    async def set_settings(step: ConfigureSubject) -> None:
        registry = context.schema_registry(step.cluster)
        if level := step.set.get(COMPATIBILITY):
            await registry.set_compatibility(level, step.subject_name)
        if mode := step.set.get(MODE):
            await registry.set_mode(mode, step.subject_name)

    return await _each(context, steps, set_settings)


async def register(context: ApplyContext, steps: Sequence[RegisterSchemas]) -> dict[str, StepResult]:
    """Registers versions in their order, those that they refer to first."""

    async def register_versions(step: RegisterSchemas) -> None:
        source = context.schema_registry(step.source_cluster)
        sync = SchemaSync(sync=True, ids="keep" if step.keep else "translate")
        copier = SchemaCopier(source, context.schema_registry(step.cluster), sync)
        await copier.copy_subject(step.source_subject, step.versions, step.subject_name, step.compatibility)

    return await _each(context, steps, register_versions)


async def _each(
    context: ApplyContext, steps: Sequence[S], change: Callable[[S], Awaitable[None]]
) -> dict[str, StepResult]:
    async def result(step: S) -> StepResult:
        if (stop_reason := await context.guard.before_request()) is not None:
            return StepResult(Result.NOT_STARTED, stop_reason)
        try:
            await change(step)
        except (NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaNotCopied) as failure:
            return failed(str(failure))
        return DONE

    results = await asyncio.gather(*(result(step) for step in steps))
    return {step.id: ended for step, ended in zip(steps, results, strict=True)}
