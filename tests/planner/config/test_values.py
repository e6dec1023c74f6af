"""What each kind of value takes, and what it becomes."""

from pathlib import Path

import pytest

from planner.config.language import scalars
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Earliest, Latest
from runtime.contract.spec.rename import Match, Table, Template
from tests.planner.config.given import loaded

FLOW = "flows:\n  - name: f\n    from: dc1\n    to: dc2\n    topics: {include: a}\n"


@pytest.mark.parametrize(
    "text", ["", "a", "1.0", "1e3", "010", "0x1F", "0b1", "1__0", "1_00", "_1", "+1", "١"]
)
def test_text_that_is_no_whole_number(text: str) -> None:
    with pytest.raises(scalars.NotReadable):
        scalars.whole(text)


QUANTITIES = {
    "7": ("a duration without its unit", "write the unit: ms, s, m, h, d or w"),
    "7 days": ('"days" is no unit of a duration', "the units are ms, s, m, h, d or w"),
    "7D": ('"D" is no unit of a duration', 'did you mean "d"?'),
    "soon": ("not a duration", "write it as 30s"),
    "-5s": ("not a duration", "write it as 30s"),
    "0.5ms": ("a fraction that is no whole number of the smallest unit", "use a smaller unit"),
    "9999999999999999d": ("more than Kafka can hold", "use a smaller value"),
}


@pytest.mark.parametrize("text", QUANTITIES)
def test_text_that_is_no_duration(text: str) -> None:
    with pytest.raises(scalars.NotReadable) as raised:
        scalars.duration(text)
    assert (raised.value.what, raised.value.hint) == QUANTITIES[text]


SETTINGS = {
    "retention.ms: 7d": "604800000",
    "retention.ms: 604800000": "604800000",
    "retention.ms: 604_800_000": "604800000",
    "retention.ms: -1": "-1",
    "retention.ms: '7d'": "604800000",
    "retention.bytes: 10GB": "10000000000",
    "segment.bytes: 1GiB": "1073741824",
    "min.insync.replicas: 2": "2",
    "cleanup.policy: [compact, delete]": "compact,delete",
    "cleanup.policy: compact": "compact",
    "compression.type: off": "off",
    "unclean.leader.election.enable: off": "false",
    "preallocate: True": "true",
    "vendor.tier.enable: TRUE": "true",
    "vendor.unknown: 2026-01-01T00:00:00Z": "2026-01-01T00:00:00Z",
    "vendor.octal: 010": "010",
    "vendor.anchored: &x 1": "1",
    "flush.ms: '1_000'": "1000",
    "vendor.hotset.ms: 1h": "3600000",
    "vendor.hotset.ms: never": "never",
    "vendor.share.bytes: 0.5": "0.5",
    "vendor.empty: ''": "",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_reach_kafka_as_text_with_its_units(setting: str, tmp_path: Path) -> None:
    (topic,) = loaded(tmp_path, f"topics: [{{name: a, cluster: dc1, config: {{{setting}}}}}]\n").topics
    assert list(topic.config.values()) == [SETTINGS[setting]]


WORDS = {
    "provenance: off": ("provenance", "off"),
    "provenance: false": ("provenance", "off"),
    "provenance: 'off'": ("provenance", "off"),
    "configs: {sync: off}": ("configs.sync", "off"),
    "configs: {sync: No}": ("configs.sync", "off"),
    "protect: off": ("protect", "off"),
    "follow: off": ("follow_every_ms", None),
    "follow: {every: 9s}": ("follow_every_ms", 9_000),
    "follow: {}": ("follow_every_ms", 5_000),
    "heartbeats: off": ("heartbeats_every_ms", None),
    "checkpoints: false": ("checkpoints_every_ms", None),
    "origin_commits: off": ("origin_commits", None),
    "origin_commits: {every: 9s}": ("origin_commits.group", "repl.f"),
    "groups: {sync: no}": ("groups.sync", False),
    "groups: {sync: on, include: []}": ("groups.include", ()),
    "acls: {sync: True}": ("acls_sync", True),
    "quotas: {sync: true}": ("quotas_sync", True),
    "rpo: 5s": ("rpo_ms", 5_000),
    "rate_limit: 50MB/s": ("rate_limit", 50_000_000),
    "promoted: a": ("promoted", ("a",)),
    "start: latest": ("start", Latest()),
    "start: {timestamp: 2026-01-01T00:00:00Z}": ("start", AtTimestamp(1_767_225_600_000)),
    "start: {timestamp: '2026-01-01T02:00:00+02:00'}": ("start", AtTimestamp(1_767_225_600_000)),
    "start: {timestamp: 1767225600000}": ("start", AtTimestamp(1_767_225_600_000)),
    "start: {offsets: {a: {0: 42, 1: 0}}}": ("start", AtOffsets({"a": {0: 42, 1: 0}})),
    'start: {"offsets": {"a": {"0": 42, "1": 0}}}': ("start", AtOffsets({"a": {0: 42, 1: 0}})),
    "restart_from: earliest": ("restart_from", Earliest()),
    "rename: '{source}.{topic}'": ("rename", Template("{source}.{topic}")),
    "rename: {match: 'a-(.*)', to: 'b-\\1'}": ("rename", Match("a-(.*)", "b-\\1")),
    "rename: {orders: orders.copy, a: b}": ("rename", Table({"a": "b", "orders": "orders.copy"})),
}


@pytest.mark.parametrize("key", WORDS)
def test_keys_of_a_flow(key: str, tmp_path: Path) -> None:
    attribute, expected = WORDS[key]
    value: object = loaded(tmp_path, f"{FLOW}    {key}\n").flows["f"]
    for name in attribute.split("."):
        value = getattr(value, name)
    assert value == expected
