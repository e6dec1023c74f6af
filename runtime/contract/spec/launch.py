"""How a job is launched and measured: declared here once, for the topology and the job."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, structs

from runtime.contract.spec.shapes import (
    Count,
    IntegerShape,
    Key,
    MapShape,
    RecordName,
    SettingsShape,
    SpecStruct,
    TextShape,
)

METRICS_PORT: Final = 9404
_UNPACKED_SHARE: Final = 8
UNPACKED_LIMIT: Final = "memory of the job, of which a batch may take an eighth"
_LEAST_UNPACKED: Final = 16 << 20
_USUAL_MEMORY: Final = 1 << 30


def spark_bytes(text: str) -> int | None:
    """Returns a size as Spark reads it, where a number without a unit is in MiB; None for another text."""
    match = re.fullmatch(r"([0-9]{1,15})(?:(b)|([kmgtp])b?)?", text.strip().lower())
    if match is None:
        return None
    number, in_bytes, unit = match.groups()
    return int(number) if in_bytes else int(number) << 10 * (1 + "kmgtp".index(unit or "m"))


class LaunchSpec(SpecStruct, frozen=True, kw_only=True):
    """Where and how the Spark application runs.

    A difference here takes effect only when the job is restarted. Where no master is given, it follows from
    the launcher.
    """

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
                r"local(\[(\d+|\*)(,\d+)?\])?|spark://\S+|yarn|k8s://\S+",
                "write local[2], spark://host:7077, yarn or k8s://https://host:443",
            ),
            default_doc="`local[2]`; `yarn` for that launcher",
            example="spark://spark.example.org:7077",
        ),
    ] = ""
    memory: Annotated[
        str,
        Key(
            "Memory of a slot's Python process, as Spark writes it. YARN and Kubernetes enforce it. A batch"
            " that is rewritten may unpack to an eighth of it.",
            TextShape("a size as Spark writes it", r"\d+[kmgtKMGT][bB]?", "write it as 1g or 512m"),
            example="2g",
        ),
    ] = "1g"
    conf: Annotated[
        Mapping[str, str],
        Key(
            "Spark's own settings.",
            SettingsShape(public=True, prefix="spark.", expected="a map of Spark's settings"),
            example="{spark.ui.port: 4050}",
        ),
    ] = {}
    options: Annotated[
        Mapping[str, str],
        Key(
            "Settings of this launcher alone: a queue, a namespace, an image.",
            MapShape(TextShape("an option of the launcher"), TextShape(), "option"),
            example="{namespace: replication}",
        ),
    ] = {}

    @property
    def unpacked_bytes(self) -> int:
        """The largest batch that a slot unpacks to rewrite it (R8): that takes several times as much memory.

        Its records are in memory as they came, one by one and as they go out.
        """
        memory = spark_bytes(self.memory)
        return max((_USUAL_MEMORY if memory is None else memory) // _UNPACKED_SHARE, _LEAST_UNPACKED)

    def __post_init__(self) -> None:
        if not self.master:
            structs.force_setattr(self, "master", "yarn" if self.launcher == "yarn" else "local[2]")


class MetricsSpec(SpecStruct, frozen=True, kw_only=True):
    """The job's Prometheus endpoint.

    `port` is 0 where none is declared: the job takes METRICS_PORT, or the next free one.
    """

    record: ClassVar = RecordName("metrics", "metrics")

    port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)],
        Key(
            "The port of the Prometheus endpoint.",
            IntegerShape(1, 65_535),
            default_doc="9404, or the next free port",
            example="9404",
        ),
    ] = 0
    host: Annotated[
        str,
        Key("The address it listens at.", TextShape("an address to listen at"), example='"0.0.0.0"'),
    ] = "127.0.0.1"
    partitions: Annotated[
        Count,
        Key("With more partitions than this, metrics are summed by topic.", example="10000"),
    ] = 2_000
