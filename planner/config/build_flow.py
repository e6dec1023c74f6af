"""A flow that was read → the model's flow."""

from typing import Any

from planner.config.language.fields import NamedReference, ParsedRecord
from planner.model.topology import (
    Configs,
    ConfigSync,
    Flow,
    FlowState,
    GroupMode,
    Groups,
    OnDataLoss,
    OnSourceDelete,
    OriginCommits,
    Protect,
    Provenance,
    Selection,
    Start,
    StartAt,
    StartAtOffsets,
    StartAtTimestamp,
)
from runtime.contract.spec.rename import Match, Rename, Table, Template


def flow_of(fields: ParsedRecord) -> Flow:
    """`fields` is complete and without mistakes."""
    destination: NamedReference = fields["to"]
    job: NamedReference | None = fields.get("job")
    reverse_of: NamedReference | None = fields.get("reverse_of")
    restart_from = fields.get("restart_from")
    return Flow(
        name=fields["name"],
        source_cluster=fields["from"].text,
        destination_cluster=destination.text,
        topics=_selection(fields["topics"]),
        job=job.text if job else destination.text,
        rename=rename_of(fields["rename"]),
        provenance=Provenance(fields["provenance"]),
        start=_start(fields["start"]),
        restart_from=_start(restart_from) if restart_from is not None else None,
        state=FlowState(fields["state"]),
        reverse_of=reverse_of.text if reverse_of else None,
        promoted=fields["promoted"],
        configs=Configs(ConfigSync(fields["configs"]["sync"]), fields["configs"]["exclude"]),
        groups=_groups(fields["groups"]),
        acls_sync=fields["acls"]["sync"],
        protect=Protect(fields["protect"]),
        rpo_ms=fields.get("rpo"),
        rate_limit=fields.get("rate_limit"),
        follow_every_ms=_every(fields["follow"]),
        heartbeats_every_ms=_every(fields["heartbeats"]),
        checkpoints_every_ms=_every(fields["checkpoints"]),
        origin_commits=_origin_commits(fields["origin_commits"], fields["name"]),
        on_source_delete=OnSourceDelete(fields["on_source_delete"]),
        on_data_loss=OnDataLoss(fields["on_data_loss"]),
        source=fields.place("name"),
    )


def rename_of(value: Any) -> Rename:
    match value:
        case str():
            return Template(value)
        case ParsedRecord():
            return Match(value["match"], value["to"])
        case _:
            return Table(tuple(sorted(value.items())))


def _selection(fields: ParsedRecord) -> Selection:
    return Selection(fields["include"], fields["exclude"], fields["default_exclude"])


def _groups(fields: ParsedRecord) -> Groups:
    return Groups(_selection(fields), fields["sync"], fields["every"], GroupMode(fields["mode"]))


def _start(value: Any) -> Start:
    match value:
        case ParsedRecord() if "timestamp" in value.values:
            return StartAtTimestamp(value["timestamp"])
        case ParsedRecord():
            return StartAtOffsets(value["offsets"])
        case "latest":
            return StartAt("latest")
        case _:
            return StartAt("earliest")


def _every(duty: ParsedRecord | None) -> int | None:
    return duty["every"] if duty is not None else None


def _origin_commits(duty: ParsedRecord | None, flow: str) -> OriginCommits | None:
    if duty is None:
        return None
    return OriginCommits(duty.get("group") or f"repl.{flow}", duty["every"])
