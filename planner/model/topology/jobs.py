"""Jobs: the Spark applications that run the flows."""

from typing import Annotated, ClassVar, Literal

from planner.model.diagnostic import SourceLocation
from runtime.contract.spec.launch import LaunchSpec, MetricsSpec
from runtime.contract.spec.shapes import AlternativesShape, ChoiceShape, IntegerShape, Key, RecordName


class Job(LaunchSpec, frozen=True):
    """One Spark application.

    A job that the topology does not declare has the defaults and no source. `metrics` is None where they are
    off.
    """

    record: ClassVar = RecordName("job", "a job")

    name: str
    slots: Annotated[
        int | Literal["auto"],
        Key(
            "Spark tasks that copy.",
            AlternativesShape(
                (ChoiceShape(("auto",)), IntegerShape(1, 10_000)), "auto, or a whole number from 1"
            ),
            default_doc="`auto`: all cores that a standalone cluster offers, and one slot on Kubernetes",
            example="4",
            after="master",
        ),
    ] = "auto"
    metrics: Annotated[
        MetricsSpec | None, Key("The Prometheus endpoint.", example="{port: 9404}", after="memory")
    ] = MetricsSpec()
    standby: Annotated[
        int,
        Key(
            "How many machines run `repl standby` for the job, to take it over when its machine is lost.",
            IntegerShape(0, 100),
            example="1",
        ),
    ] = 0
    source: SourceLocation | None = None
