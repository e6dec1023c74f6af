"""Jobs: the Spark applications that run the flows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from planner.model.diagnostic import SourceLocation
from runtime.contract.spec.shapes import (
    AlternativesShape,
    ChoiceShape,
    IntegerShape,
    Key,
    MapShape,
    RecordName,
    Section,
    SettingsShape,
    TextShape,
)

METRICS = Section(
    "metrics",
    "The Prometheus endpoint.",
    RecordName("metrics", "metrics", "The job's Prometheus endpoint."),
    example="{port: 9404}",
    off=True,
)


@dataclass(frozen=True, slots=True)
class Job:
    """One Spark application.

    A job that the topology does not declare has the defaults and no source. Where no master is given, it
    follows from the launcher. `metrics_port` is 0 where no port is declared, and None where metrics are off.
    """

    record: ClassVar = RecordName("job", "a job")

    name: str
    launcher: Annotated[
        Literal["local", "standalone", "yarn", "kubernetes"],
        Key("What starts the job and watches it.", example="standalone"),
    ] = "local"
    master: Annotated[
        str,
        Key(
            "Spark's master.",
            TextShape(
                "a Spark master",
                r"local(\[(\d+|\*)(,\d+)?\])?|spark://.+|yarn|k8s://.+",
                "write local[2], spark://host:7077, yarn or k8s://https://host:443",
            ),
            default_doc="`local[2]`; `yarn` for that launcher",
            example="spark://spark.example.org:7077",
        ),
    ] = ""
    slots: Annotated[
        int | Literal["auto"],
        Key(
            "Spark tasks that copy.",
            AlternativesShape(
                (ChoiceShape(("auto",)), IntegerShape(1, 10_000)), "auto, or a whole number from 1"
            ),
            example="4",
        ),
    ] = "auto"
    memory: Annotated[
        str,
        Key(
            "Memory of a slot's Python process, as Spark writes it. YARN and Kubernetes enforce it.",
            TextShape("a size as Spark writes it", r"\d+[kmgtKMGT][bB]?", "write it as 1g or 512m"),
            example="2g",
        ),
    ] = "1g"
    metrics_port: Annotated[
        int | None,
        Key(
            "The port of the Prometheus endpoint.",
            IntegerShape(1, 65_535),
            name="port",
            section=METRICS,
            default_doc="9404, or the next free port",
            example="9404",
        ),
    ] = 0
    metrics_host: Annotated[
        str,
        Key(
            "The address it listens at.",
            TextShape("an address to listen at"),
            name="host",
            section=METRICS,
            example='"0.0.0.0"',
        ),
    ] = "127.0.0.1"
    metrics_partitions: Annotated[
        int,
        Key(
            "With more partitions than this, metrics are summed by topic.",
            IntegerShape(0, 1_000_000),
            name="partitions",
            section=METRICS,
            example="10000",
        ),
    ] = 2_000
    conf: Annotated[
        Mapping[str, str],
        Key(
            "Spark's own settings.",
            SettingsShape(public=True, prefix="spark.", expected="a map of Spark's settings"),
            example="{spark.ui.port: 4050}",
        ),
    ] = field(default_factory=dict)
    options: Annotated[
        Mapping[str, str],
        Key(
            "Settings of this launcher alone: a queue, a namespace, an image.",
            MapShape(TextShape("an option of the launcher"), TextShape(), "option"),
            example="{namespace: replication}",
        ),
    ] = field(default_factory=dict)
    source: SourceLocation | None = None
    standby: Annotated[
        int,
        Key(
            "How many machines run `repl standby` for the job, to take it over when its machine is lost.",
            IntegerShape(0, 100),
            example="1",
        ),
    ] = 0

    def __post_init__(self) -> None:
        if not self.master:
            object.__setattr__(self, "master", "yarn" if self.launcher == "yarn" else "local[2]")
