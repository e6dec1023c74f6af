"""Flows: what is copied from where to where, and how.

The keys that a job needs unchanged are in `runtime.contract.spec.flow`.
"""

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, structs

from planner.model.diagnostic import SourceLocation
from planner.model.topology.resources import CLUSTER_REFERENCE, NAME, SOURCE_REFERENCE
from runtime.contract.spec.files import LOOK_MS, ROUND_MS
from runtime.contract.spec.flow import FlowSettings
from runtime.contract.spec.selection import NamePatterns, SelectionSpec
from runtime.contract.spec.shapes import Interval, Key, RecordName, Regex, Section, TextShape, ValueShape


class Selection(SelectionSpec, frozen=True):
    """Which topics a flow copies.

    The lists are whole-name regexes: include, less exclude, less the default denials where they are on.
    """

    record: ClassVar = RecordName("flow-topics", "the topics of a flow")

    include: Annotated[
        Annotated[tuple[Regex, ...], Meta(min_length=1)],
        Key(
            "Regexes for whole names: the source topics that are copied.",
            example='[orders, "payments\\\\..*"]',
            required=True,
            unless="to",
        ),
    ] = ()
    to: Annotated[
        str | None,
        Key(
            "The topic that takes the lines or rows of files, in place of `include`. Only a flow from files"
            " has it.",
            ValueShape.TOPIC_NAME,
            example="inbox",
        ),
    ] = None


Provenance = Literal["off", "batch", "headers", "auto"]

QUOTA_SYNC = Section(
    "quotas",
    "Whether client quotas follow.",
    RecordName("flow-quotas", "the quotas of a flow", "Whether the client quotas of the source follow."),
    example="{sync: false}",
    inherited=True,
)

_patterns = lru_cache(maxsize=1_024)(NamePatterns)


class Flow(FlowSettings, frozen=True):
    """A directed copy: from one cluster to another.

    `job` is the destination's name where none is given.
    """

    record: ClassVar = RecordName("flow", "a flow")

    name: Annotated[str, Key("Its name: `flow.<name>` in plans.", NAME, example="dc1-to-dc2")]
    source_cluster: Annotated[
        str,
        Key(
            "The cluster or endpoint it copies from. Files may stand here: `{file: FOLDER, format: text}`.",
            SOURCE_REFERENCE,
            name="from",
            example="dc1",
        ),
    ]
    destination_cluster: Annotated[
        str, Key("The cluster or endpoint it copies to.", CLUSTER_REFERENCE, name="to", example="dc2")
    ]
    topics: Annotated[Selection, Key("Which topics it copies.", example="{include: [orders]}")]
    provenance: Annotated[
        Provenance,
        Key(
            "How records that came from the destination are recognized, so that they never return to it.",
            example="headers",
            inherited=True,
            after="rename",
        ),
    ] = "auto"
    quotas_sync: Annotated[
        bool,
        Key(
            "Whether the client quotas of the source are mirrored by a plan, where the destination has none "
            "for the same user, client id or address.",
            name="sync",
            section=QUOTA_SYNC,
            example="true",
            after="acls_sync",
        ),
    ] = False
    every_ms: Annotated[
        Interval | None,
        Key(
            "How often a flow into files writes them, or a flow from files looks at the folder. Other flows"
            " have no such key.",
            default_doc="`60s` into files, `1s` from files",
            example="60s",
            after="on_data_loss",
        ),
    ] = None
    job: Annotated[
        str,
        Key(
            "The job that runs it.",
            TextShape("the name of a job", placed=True),
            default_doc="the destination's name; from files, the endpoint's name",
            example="dc2",
            inherited=True,
        ),
    ] = ""
    source: SourceLocation | None = None

    def __post_init__(self) -> None:
        if not self.job:
            named_after = self.source_cluster if self.from_files else self.destination_cluster
            structs.force_setattr(self, "job", named_after)
        if self.origin_commits is not None and not self.origin_commits.group:
            named = structs.replace(self.origin_commits, group=f"repl.{self.name}")
            structs.force_setattr(self, "origin_commits", named)

    def has_promoted(self, topic: str) -> bool:
        """Returns whether the topic, by its name at the source, was promoted on its own."""
        return bool(self.promoted) and _patterns(self.promoted).match(topic)

    def copies(self, topic: str) -> bool:
        """Returns whether the flow runs and the topic was not promoted."""
        return self.runs and not self.has_promoted(topic)

    @property
    def ends(self) -> tuple[str, str]:
        """The clusters, or endpoints, that the flow copies between: the source and the destination."""
        return self.source_cluster, self.destination_cluster

    @property
    def from_files(self) -> bool:
        """Whether the flow reads files."""
        return self.topics.to is not None

    @property
    def interval_ms(self) -> int:
        """How often a flow into files writes them, or a flow from files reads the folder."""
        return self.every_ms or (LOOK_MS if self.from_files else ROUND_MS)

    @property
    def quarantines(self) -> bool:
        """Whether bad records of the flow go to a quarantine topic beside their mirror."""
        return self.transform is not None and self.transform.quarantines
