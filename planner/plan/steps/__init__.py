"""The kinds of objects and of steps, a module for each kind of object.

A class has everything that is particular to its kind. A new kind of step is a class in one of these modules
and a line in KINDS, and a handler that carries it out, with a line in `planner.apply.handlers`
(docs/internals/adding-a-step.md).
"""

from collections.abc import Mapping
from typing import Any, Union

from planner.model.address import Kind
from planner.model.plain import plain, value_of
from planner.model.step import Step, declare_kinds
from planner.plan.object_kind import ObjectKind
from planner.plan.steps import acls, jobs, quotas, registry, restores, schemas, topics

# In the order of execution: additions come first and removals last, so that an interrupted plan has lost
# nothing.
KINDS: tuple[type[Step], ...] = (
    topics.CreateTopic,
    topics.Reassign,
    topics.GrowPartitions,
    topics.AlterConfigs,
    acls.CreateAcl,
    quotas.AlterQuota,
    schemas.ConfigureSubject,
    schemas.RegisterSchemas,
    registry.Own,
    jobs.StopJob,
    jobs.ReconfigureJob,
    jobs.LaunchJob,
    restores.RestoreRecords,
    restores.RestoreOffsets,
    restores.RestoreSchemas,
    acls.DeleteAcl,
    topics.DeleteTopic,
    registry.Disown,
)
AnyStep = Union[KINDS]  # type: ignore[valid-type]  # noqa: UP007  the table is made once
declare_kinds(AnyStep)


def noted(step: Step) -> Mapping[str, Any]:
    """Returns a step as the journal of an apply keeps it."""
    tree: Mapping[str, Any] = plain(step.noted)
    return tree


def step_of(tree: Mapping[str, Any]) -> Step:
    """Returns a step of a journal. Raises NotPlain."""
    step: Step = value_of(tree, AnyStep)
    return step


OBJECTS: dict[Kind, ObjectKind] = {
    Kind.TOPIC: topics.TopicKind(),
    Kind.ACL: acls.AclKind(),
    Kind.QUOTA: quotas.QuotaKind(),
    Kind.SCHEMA: schemas.SchemaKind(),
    Kind.FLOW: jobs.FlowKind(),
    Kind.JOB: jobs.JobKind(),
}
