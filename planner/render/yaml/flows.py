"""A flow as its YAML: only what differs from the language's defaults."""

from datetime import UTC, datetime
from typing import assert_never

from planner.diff.values import in_units
from planner.model.topology import (
    Configs,
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
from planner.render.yaml.text import UnquotedText, Value
from runtime.contract.spec.rename import SAME_NAME, Match, Rename, Table, Template

_DEFAULT = Flow("", "", "", Selection())


def flow_value(flow: Flow) -> dict[str, Value]:
    found: dict[str, Value] = {
        "name": flow.name,
        "from": flow.source_cluster,
        "to": flow.destination_cluster,
        "topics": _selection(flow.topics),
    }
    if flow.rename != SAME_NAME:
        found["rename"] = _rename(flow.rename)
    if flow.provenance is not Provenance.AUTO:
        found["provenance"] = UnquotedText(flow.provenance.value)
    if flow.start != _DEFAULT.start:
        found["start"] = _start(flow.start)
    if flow.restart_from is not None:
        found["restart_from"] = _start(flow.restart_from)
    if flow.state is not FlowState.ACTIVE:
        found["state"] = flow.state.value
    if flow.reverse_of is not None:
        found["reverse_of"] = flow.reverse_of
    if flow.promoted:
        found["promoted"] = list(flow.promoted)
    found |= _following(flow) | _limits(flow) | _duties(flow)
    if flow.job != flow.destination_cluster:
        found["job"] = flow.job
    return found


def _following(flow: Flow) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if flow.configs != Configs():
        configs: dict[str, Value] = {"sync": UnquotedText(flow.configs.sync.value)}
        if flow.configs.exclude:
            configs["exclude"] = list(flow.configs.exclude)
        found["configs"] = configs
    if flow.groups != Groups():
        found["groups"] = _groups(flow.groups)
    if flow.acls_sync:
        found["acls"] = {"sync": True}
    return found


def _limits(flow: Flow) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if flow.protect is not Protect.OFF:
        found["protect"] = flow.protect.value
    if flow.rpo_ms is not None:
        found["rpo"] = duration(flow.rpo_ms)
    if flow.rate_limit is not None:
        found["rate_limit"] = UnquotedText(in_units(".bytes", str(flow.rate_limit)) + "/s")
        if found["rate_limit"] == UnquotedText(f"{flow.rate_limit}/s"):
            found["rate_limit"] = UnquotedText(f"{flow.rate_limit}B/s")
    return found


def _duties(flow: Flow) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, every, default in (
        ("follow", flow.follow_every_ms, _DEFAULT.follow_every_ms),
        ("heartbeats", flow.heartbeats_every_ms, _DEFAULT.heartbeats_every_ms),
        ("checkpoints", flow.checkpoints_every_ms, _DEFAULT.checkpoints_every_ms),
    ):
        if every != default:
            found[key] = _every(every)
    usual = OriginCommits(f"repl.{flow.name}")
    if flow.origin_commits is None:
        found["origin_commits"] = UnquotedText("off")
    elif flow.origin_commits != usual:
        commits: dict[str, Value] = {}
        if flow.origin_commits.group != usual.group:
            commits["group"] = flow.origin_commits.group
        if flow.origin_commits.every_ms != usual.every_ms:
            commits["every"] = duration(flow.origin_commits.every_ms)
        found["origin_commits"] = commits
    if flow.on_source_delete is not OnSourceDelete.KEEP:
        found["on_source_delete"] = flow.on_source_delete.value
    if flow.on_data_loss is not OnDataLoss.STOP:
        found["on_data_loss"] = flow.on_data_loss.value
    return found


def _selection(selection: Selection) -> dict[str, Value]:
    found: dict[str, Value] = {"include": list(selection.include)}
    if selection.exclude:
        found["exclude"] = list(selection.exclude)
    if not selection.default_exclude:
        found["default_exclude"] = False
    return found


def _groups(groups: Groups) -> dict[str, Value]:
    usual = Groups()
    found = _selection(groups.select)
    if groups.select.include == usual.select.include:
        del found["include"]
    if groups.sync != usual.sync:
        found["sync"] = groups.sync
    if groups.every_ms != usual.every_ms:
        found["every"] = duration(groups.every_ms)
    if groups.mode is not GroupMode.EXACT:
        found["mode"] = groups.mode.value
    return found


def _rename(rename: Rename) -> Value:
    match rename:
        case Template(text):
            return text
        case Match(match=regex, to=to):
            return {"match": regex, "to": to}
        case Table(names):
            return dict(names)
        case _:
            assert_never(rename)


def _start(start: Start) -> Value:
    match start:
        case StartAt(at):
            return at
        case StartAtTimestamp(milliseconds):
            when = datetime.fromtimestamp(milliseconds / 1000, UTC)
            return {"timestamp": UnquotedText(when.isoformat(timespec="milliseconds").replace("+00:00", "Z"))}
        case StartAtOffsets(offsets):
            return {
                "offsets": {
                    topic: {str(partition): offset for partition, offset in of.items()}
                    for topic, of in offsets.items()
                }
            }
        case _:
            assert_never(start)


def _every(milliseconds: int | None) -> Value:
    return UnquotedText("off") if milliseconds is None else {"every": duration(milliseconds)}


def duration(milliseconds: int) -> UnquotedText:
    text = in_units(".ms", str(milliseconds))
    return UnquotedText(text if not text.isdecimal() else f"{text}ms")
