"""One handler for each kind of step. A new kind of step is a function here and a line in this table."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from planner.apply.context import ApplyContext
from planner.apply.handlers import jobs, principals, register, schemas, topics
from planner.model.step import Step, StepResult
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob, StopJob
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.registry import Disown, Own
from planner.plan.steps.restores import RestoreOffsets, RestoreRecords, RestoreSchemas, RestoreStep
from planner.plan.steps.schemas import ConfigureSubject, RegisterSchemas
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign

Handler = Callable[[ApplyContext, Sequence[Any]], Awaitable[dict[str, StepResult]]]


async def _restore(context: ApplyContext, steps: Sequence[RestoreStep]) -> dict[str, StepResult]:
    return await context.tools.restore(context.endpoint, steps)


HANDLERS: dict[type[Step], Handler] = {
    CreateTopic: topics.create,
    GrowPartitions: topics.grow,
    AlterConfigs: topics.alter_configs,
    Reassign: topics.reassign,
    DeleteTopic: topics.delete,
    CreateAcl: principals.change_acls,
    DeleteAcl: principals.change_acls,
    AlterQuota: principals.alter_quota,
    ConfigureSubject: schemas.configure,
    RegisterSchemas: schemas.register,
    Own: register.own,
    Disown: register.disown,
    LaunchJob: jobs.launch,
    ReconfigureJob: jobs.reconfigure,
    StopJob: jobs.stop,
    RestoreRecords: _restore,
    RestoreOffsets: _restore,
    RestoreSchemas: _restore,
}
