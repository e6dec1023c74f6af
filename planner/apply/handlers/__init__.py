"""One handler for each kind of step. A new kind of step is a function here and a line in this table."""

from collections.abc import Callable, Sequence
from typing import Any

from planner.apply.context import ApplyContext
from planner.apply.handlers import jobs, principals, register, topics
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
    Reassign: topics.reassign,
    DeleteTopic: topics.delete,
    CreateAcl: principals.create_acl,
    DeleteAcl: principals.delete_acl,
    AlterQuota: principals.alter_quota,
    Own: register.own,
    Disown: register.disown,
    LaunchJob: jobs.launch,
    ReconfigureJob: jobs.reconfigure,
    StopJob: jobs.stop,
}
