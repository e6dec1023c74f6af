"""One handler for each kind of step. A new kind of step is a function here and a line in this table."""

from collections.abc import Callable, Sequence
from typing import Any

from planner.apply.context import ApplyContext
from planner.apply.handlers import acls, jobs, quotas, reassign, register, topics
from planner.model.step import (
    AlterConfigs,
    AlterQuota,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    RequestResult,
    Step,
    StopJob,
)

Handler = Callable[[ApplyContext, Sequence[Any]], dict[str, RequestResult]]

HANDLERS: dict[type[Step], Handler] = {
    CreateTopic: topics.create,
    GrowPartitions: topics.grow,
    AlterConfigs: topics.alter_configs,
    Reassign: reassign.perform,
    DeleteTopic: topics.delete,
    CreateAcl: acls.create,
    DeleteAcl: acls.delete,
    AlterQuota: quotas.alter,
    Own: register.own,
    Disown: register.disown,
    LaunchJob: jobs.launch,
    ReconfigureJob: jobs.reconfigure,
    StopJob: jobs.stop,
}
