"""The requests that workflows take. Their annotated fields are the options and arguments of the commands.

Each field is described here alone: `repl COMMAND --help` and docs/cli*.md are made of it. A field without an
option is for Python. Durations are in milliseconds. This module loads nothing that runs behind a workflow,
because `--help` imports it.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Struct

from planner.workflows.options import (
    DURATION,
    MOMENT,
    OFFSET_RANGE,
    PATTERN,
    PERCENT,
    RATE,
    Argument,
    Cluster,
    CopiedWithin,
    Flow,
    Option,
    Policies,
    Targets,
    TextFormat,
    Timeout,
    TopologyArgument,
)

if TYPE_CHECKING:
    from planner.model.plan import Plan

Derived = TypeVar("Derived")


class TopologyRequest(Struct, frozen=True):
    """Names the file or folder of a topology. `policies` are files of rules, beside those of REPL_POLICY."""

    path: Annotated[Path, TopologyArgument()]
    var_files: Annotated[
        tuple[Path, ...],
        Option("--var-file", "Values for the topology's variables; repeatable, the later file wins.", "FILE"),
    ] = ()
    timeout_ms: Timeout = 10_000
    policies: tuple[Path, ...] = ()

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000

    def derive(self, kind: Callable[..., Derived], **fields: Any) -> Derived:
        """Returns a request of another kind about the same topology."""
        return kind(path=self.path, var_files=self.var_files, timeout_ms=self.timeout_ms, **fields)


class ChangeRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request that changes clusters. `wait`: until launched jobs copy."""

    lock_timeout_ms: Annotated[
        int,
        Option("--lock-timeout", "How long to wait for another apply to finish.", "DURATION", kind=DURATION),
    ] = 60_000
    wait: bool = True


# Plan and apply


class PlanRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for the plan of a topology, or of the rollback of an apply."""

    policies: Policies = ()
    targets: Targets = ()
    rollback: Annotated[
        str | None, Option("--rollback", "Plan to take back an apply; repl history lists the ids.", "ID")
    ] = None
    untrusted: Annotated[
        bool,
        Option(
            "--untrusted",
            "For a topology from somebody else, such as a pull request: demand REPL_ALLOW_ENV, "
            "REPL_ALLOW_FILES and REPL_ALLOW_BOOTSTRAP, and refuse clear-text credentials, unchecked "
            "certificates, variables from other folders and --rollback.",
        ),
    ] = False


class SimulationRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for a forecast of every running flow, or of those named by `flows`."""

    flows: tuple[str, ...] | None = None

    rate: Annotated[
        int,
        Option(
            "--rate",
            "With --simulate: how fast a flow copies. A lower rate_limit of the flow counts.",
            "RATE",
            kind=RATE,
        ),
    ] = 50_000_000
    outage_ms: Annotated[
        int, Option("--outage", "With --simulate: how long the link is down.", "DURATION", kind=DURATION)
    ] = 6 * 3_600_000


class ApplyRequest(ChangeRequest, frozen=True, kw_only=True):
    """A request to make the clusters match a topology, or to execute a plan.

    `path` is a topology, or a file that `save_plan` wrote. `plan` was approved by its caller: exactly its
    steps are executed, and `path` is its topology.
    """

    policies: Policies = ()
    targets: Targets = ()
    expect: Annotated[
        str | None,
        Option(
            "--expect",
            "Refuse any other saved plan than this one: the sha256:... that repl plan printed.",
            "DIGEST",
        ),
    ] = None
    wait: Annotated[bool, Option("--no-wait", "Do not wait until launched jobs really copy.")] = True
    plan: "Plan | None" = None


class ImportRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request to write live clusters as a topology: those of the topology at `path`, or one of any name."""

    clusters: Annotated[tuple[str, ...], Argument("[CLUSTER]... [PATH]")]
    pattern: Annotated[
        str | None, Option("--topics", "Only topics whose whole name matches this regex.", "RE")
    ] = None
    bootstrap: Annotated[
        str | None,
        Option(
            "--bootstrap", "Where CLUSTER is, if no topology declares it; it may be any name.", "HOST:PORT"
        ),
    ] = None
    client_config: Annotated[
        Path | None,
        Option(
            "--client-config",
            "With --bootstrap: librdkafka settings to connect by, as key=value lines.",
            "FILE",
        ),
    ] = None
    name: Annotated[
        str | None,
        Option("--name", "The new topology's name.  [default: imported-CLUSTER]", "NAME"),
    ] = None


class TakeOver(Struct, frozen=True, kw_only=True):
    """A request to begin the flows of an imported topology where the tool that they replace stopped."""

    groups: Annotated[
        tuple[str, ...],
        Option(
            "--from-group",
            "With --replicator: begin the flow where Replicator's group has committed at the source; may be"
            " given several times.",
            "GROUP",
        ),
    ] = ()
    timeout_ms: int = 10_000
    force: Annotated[
        bool,
        Option(
            "--force",
            "With --take-over or --from-group: go on where the tool seems to run, or a topic was recreated.",
        ),
    ] = False


# Operate


class ReplicationStatusRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for the status of every flow.

    Without `every_offset`, offsets that decide no state are not read: high watermarks and the log starts of
    mirrors.
    """

    over_ms: Annotated[
        int,
        Option(
            "--over",
            "How long to measure rates; 0s reads once and shows none.",
            "DURATION",
            kind=DURATION,
        ),
    ] = 1_000
    every_offset: bool = True


class FlowRequest(ChangeRequest, frozen=True, kw_only=True):
    """A request that changes one flow."""

    flow: Flow


class ResumeRequest(FlowRequest, frozen=True, kw_only=True):
    """A request to resume a flow."""

    accept_loss: Annotated[
        bool,
        Option(
            "--accept-loss",
            "Continue without lost records: partitions in data_loss, recreated or diverged.",
        ),
    ] = False


class HistoryRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for all applies of a topology's clusters, or for the one whose id starts with `apply_id`."""

    apply_id: Annotated[str | None, Option("--id", "One apply with every step of it.", "ID")] = None


class StandbyRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request to stand by for a job of the topology."""

    job: Annotated[str, Argument()]


# Disaster recovery


class FailoverRequest(ChangeRequest, frozen=True, kw_only=True):
    """A request to end every flow out of `cluster`, which need not answer."""

    cluster: Cluster


class FailbackRequest(ChangeRequest, frozen=True, kw_only=True):
    """A request to return to `cluster`, out of which flows were promoted or failed over."""

    cluster: Cluster
    copied_within_ms: CopiedWithin = 600_000
    wait: Annotated[bool, Option("--no-wait", "Do not wait until all records are copied back.")] = True


class PromoteRequest(FlowRequest, frozen=True, kw_only=True):
    """A request to promote a flow, or its topics whose whole names match the regex `topics`."""

    copied_within_ms: CopiedWithin = 600_000
    topics: Annotated[
        str | None,
        Option(
            "--topics", "Only these topics of the flow; the others keep being copied.", "RE", kind=PATTERN
        ),
    ] = None


class CutoverRequest(ChangeRequest, frozen=True, kw_only=True):
    """A request to move a wave of a cutover, or to take it back. Without `wave`: the first that is left."""

    cutover: Annotated[str, Argument("NAME")]
    copied_within_ms: CopiedWithin = 600_000
    wave: Annotated[
        str | None, Option("--wave", "This wave.  [default: the first that has not moved]", "WAVE")
    ] = None
    back: Annotated[
        bool, Option("--back", "Take the wave back: let its producers write at the source again.")
    ] = False
    switch: Annotated[
        bool, Option("--switch", "With --back, once all is copied back: its clients return to the source.")
    ] = False


class SalvageRequest(FlowRequest, frozen=True, kw_only=True):
    """A request for the records of a flow's source that never reached the destination.

    They are replayed into the flow's own topics, or all into `to`.
    """

    to: Annotated[
        str | None, Option("--to", "With --replay: into this topic of the destination.", "TOPIC")
    ] = None


class RestoreBackupRequest(ChangeRequest, frozen=True, kw_only=True):
    """A request to restore the backup at `endpoint` into the cluster `to`."""

    endpoint: Annotated[str, Argument()]
    to: Annotated[str, Option("--to", "The cluster of the topology to restore into.", "CLUSTER")]
    until_ms: Annotated[
        int | None,
        Option(
            "--until",
            "End each partition before its first record that is later, such as 2026-01-31T12:00:00Z.",
            "TIME",
            kind=MOMENT,
        ),
    ] = None
    topics: Annotated[
        str, Option("--topics", "Only topics whose whole name matches.", "RE", kind=PATTERN)
    ] = ".*"
    rename: Annotated[
        str,
        Option("--rename", "Name each topic TEXT, which holds {topic}: {topic}.restored.", "TEXT"),
    ] = "{topic}"
    groups: Annotated[
        str | None,
        Option(
            "--groups",
            "Restore the offsets of groups that match.  [default: all; none where topics are renamed]",
            "RE",
            kind=PATTERN,
        ),
    ] = None
    acls: Annotated[bool, Option("--acls", "Restore ACLs of the topics too.")] = False
    schema_ids: Annotated[
        Literal["keep", "translate"],
        Option(
            "--schema-ids",
            "Register schemas with their ids, or write the ids of the cluster's registry into the records.",
            choices=("keep", "translate"),
        ),
    ] = "keep"
    retention: Annotated[bool, Option("--no-retention", "Keep all records: set retention to no limit.")] = (
        True
    )
    flow: Annotated[
        str | None,
        Option("--flow", "The flow whose backup it is, where the endpoint holds several.", "FLOW"),
    ] = None


# Inspect


class VerifyFlowRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request to compare both sides of a flow.

    `low` and `high` bound the source offsets of each partition, `high` not included; `last` selects so many
    before the end. `sample` is in percent, `rate` in bytes a second.
    """

    flow: Flow
    topics: Annotated[
        str | None,
        Option(
            "--topics",
            "Only topics, or files, whose whole names at the source match.",
            "RE",
            kind=PATTERN,
        ),
    ] = None
    low: Annotated[
        int | None,
        Option(
            "--range",
            "Only these source offsets of each partition, TO not included; or the last N.  [default: all]",
            "FROM:TO|last:N",
            kind=OFFSET_RANGE,
            fills=("low", "high", "last"),
        ),
    ] = None
    high: int | None = None
    last: int | None = None
    sample: Annotated[
        float,
        Option("--sample", "Only this share, in random ranges of 1,000 offsets.", "P%", kind=PERCENT),
    ] = 100.0
    rate: Annotated[
        int | None,
        Option("--rate", "Read at most this much, for example 20MB/s.", "RATE", kind=RATE),
    ] = None
    resume: Annotated[bool, Option("--resume", "Continue where the same command was cut.")] = False
    on_cluster: Annotated[
        bool,
        Option("--on-cluster", "Run on the Spark cluster of the flow's job, not on this machine."),
    ] = False


class ClusterRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request about one cluster of a topology, and about one of its topics or all."""

    cluster: Cluster
    topic: Annotated[str | None, Argument()] = None


class OffsetsRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for a group's offsets at both sides of a flow."""

    flow: Flow
    group: Annotated[str, Argument()]


class TranslateOffsetsRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request to translate the stored offsets of a file to the other side of a flow.

    They are those of the source, with `reverse` those of the destination.
    """

    flow: Flow
    file: Annotated[Path, Argument()]
    reverse: Annotated[
        bool, Option("--reverse", "The offsets are those of the destination: translate them to the source.")
    ] = False


_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+)(?::(?P<offset>\d+)|@(?P<moment>.+))")


def record_place(text: str) -> tuple[str, int, int | None, int | None]:
    """Returns topic, partition, offset and timestamp of a record. ValueError shows both forms of a place."""
    place = _PLACE.fullmatch(text)
    if place is None:
        raise ValueError(
            "is no place of a record: orders:0:42 is offset 42 of partition 0,"
            " orders:0@2026-01-31T08:00:00Z the first one since then"
        )
    offset = int(place["offset"]) if place["offset"] is not None else None
    timestamp_ms = MOMENT.read(place["moment"]) if place["moment"] is not None else None
    return place["topic"], int(place["partition"]), offset, timestamp_ms


class LocateRecordRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for a record at the other side of a flow, by its offset or by its timestamp.

    The record is at the source, with `reverse` at the destination; `topic` is its name there.
    """

    flow: Flow
    topic: Annotated[
        str,
        Argument(
            "TOPIC:PARTITION:OFFSET|TOPIC:PARTITION@TIMESTAMP",
            kind=TextFormat("place", record_place),
            fills=("topic", "partition", "offset", "timestamp_ms"),
        ),
    ]
    partition: int
    offset: int | None = None
    timestamp_ms: int | None = None
    reverse: Annotated[
        bool, Option("--reverse", "The record is at the destination: find where it came from.")
    ] = False


class TryFlowRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request to try a flow's transform on its newest records at the source, or on those of a file."""

    flow: Flow
    limit: Annotated[
        int,
        Option("--limit", "At most this many records: the newest at the source.", "N", least=1, most=10_000),
    ] = 20
    sample: Annotated[
        Path | None,
        Option(
            "--sample",
            "Take the records from FILE: one value a line, or the output of repl read --json.",
            "FILE",
            path="file",
        ),
    ] = None


class DrillRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for a drill. A limit, or a time of load, that is None is the topology's own (`drill`)."""

    max_rto_ms: Annotated[
        int | None,
        Option(
            "--max-rto",
            "The longest time until consumers read on.  [default: drill.max_rto of the topology]",
            "DURATION",
            kind=DURATION,
        ),
    ] = None
    max_rpo: Annotated[
        int | None,
        Option(
            "--max-rpo",
            "The most records that may be missing.  [default: drill.max_rpo of the topology]",
            "RECORDS",
            least=0,
        ),
    ] = None
    load_ms: Annotated[
        int | None,
        Option(
            "--load",
            "How long producers write before a cluster is killed."
            "  [default: drill.load of the topology, 10s]",
            "DURATION",
            kind=DURATION,
        ),
    ] = None
    features: Annotated[
        Path | None,
        Option(
            "--features",
            "Run the scenarios of these .feature files instead, a folder or one file.",
            "DIR",
            exists=True,
        ),
    ] = None
    against: Annotated[
        str,
        Option(
            "--against",
            "Rehearse on clusters of this machine, or only read the live ones.",
            choices=("lab", "live"),
        ),
    ] = "lab"
    canaries: Annotated[
        bool,
        Option(
            "--canaries",
            "With --against live: let canary records cross each flow in scratch topics, and remove them.",
        ),
    ] = False


# Tools


class LabChoices(Struct, frozen=True):
    """The clusters of a lab. None keeps the existing value, else the default."""

    clusters: Annotated[
        str | None,
        Option("--clusters", "Their names, with commas.  [default: those there are, else dc1,dc2]", "NAMES"),
    ] = None
    brokers: Annotated[
        int | None, Option("--brokers", "Brokers of each cluster.  [default: 1]", least=1, most=9)
    ] = None
    security: Annotated[
        str | None,
        Option(
            "--security",
            "sasl: users and ACLs; tls: both sides show certificates; sasl-tls: sasl over TLS; server-tls: "
            "only brokers show certificates; kerberos: users have keytabs; kerberos-tls: kerberos over TLS.  "
            "[default: plain]",
            choices=("plain", "sasl", "tls", "sasl-tls", "server-tls", "kerberos", "kerberos-tls"),
        ),
    ] = None
    ports: Annotated[
        str, Option("--ports", "fixed: 19092, 29092, …; auto: free ones.", choices=("fixed", "auto"))
    ] = "fixed"
    settings: Annotated[
        tuple[str, ...],
        Option(
            "--set",
            "A broker property, for every cluster or for one. May be repeated.",
            "[CLUSTER:]KEY=VALUE",
        ),
    ] = ()
    users: Annotated[
        tuple[str, ...],
        Option(
            "--user",
            "A user beside admin, with sasl, kerberos and tls. May be repeated.  [default: repl, app]",
            "NAME",
        ),
    ] = ()
    version: Annotated[
        str | None,
        Option(
            "--version",
            "Kafka's version, for every cluster or for each: dc1=2.8.2,dc2=4.4.0.  [default: 4.4.0]",
            "VERSION",
        ),
    ] = None
    mechanism: Annotated[
        str | None,
        Option(
            "--mechanism",
            "How users log in with sasl and sasl-tls.  [default: SCRAM-SHA-512]",
            choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        ),
    ] = None
