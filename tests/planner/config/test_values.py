"""What each kind of value takes, what it becomes, and what is said of one that is wrong."""

# ruff: noqa: E501  (the long lines are what a user reads)

from pathlib import Path

import pytest

from planner.config.language import scalars
from planner.model.topology import StartAt, StartAtOffsets, StartAtTimestamp
from runtime.contract.spec.rename import Match, Table, Template
from tests.planner.config.given import loaded, mistakes

FLOW = "flows:\n  - name: f\n    from: dc1\n    to: dc2\n    topics: {include: a}\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("7", 7), ("-1", -1), ("1_000", 1_000), ("1_000_000", 1_000_000), ("123", 123)],
)
def test_whole_numbers(text: str, number: int) -> None:
    assert scalars.whole(text) == number


@pytest.mark.parametrize(
    "text", ["", "a", "1.0", "1e3", "010", "0x1F", "0b1", "1__0", "1_00", "_1", "+1", "١"]
)
def test_text_that_is_no_whole_number(text: str) -> None:
    with pytest.raises(scalars.NotReadable):
        scalars.whole(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1.5h", 5_400_000),
        ("30 s", 30_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert scalars.duration(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1KB", 1_000),
        ("1KiB", 1_024),
        ("10MB", 10**7),
        ("1.5GiB", 1_610_612_736),
        ("2TB", 2 * 10**12),
        ("5B", 5),
    ],
)
def test_sizes(text: str, number: int) -> None:
    assert scalars.size(text) == number


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
    "groups: {sync: on, include: []}": ("groups.select.include", ()),
    "acls: {sync: True}": ("acls_sync", True),
    "quotas: {sync: true}": ("quotas_sync", True),
    "rpo: 5s": ("rpo_ms", 5_000),
    "rate_limit: 50MB/s": ("rate_limit", 50_000_000),
    "promoted: a": ("promoted", ("a",)),
    "start: latest": ("start", StartAt("latest")),
    "start: {timestamp: 2026-01-01T00:00:00Z}": ("start", StartAtTimestamp(1_767_225_600_000)),
    "start: {timestamp: '2026-01-01T02:00:00+02:00'}": ("start", StartAtTimestamp(1_767_225_600_000)),
    "start: {timestamp: 1767225600000}": ("start", StartAtTimestamp(1_767_225_600_000)),
    "start: {offsets: {a: {0: 42, 1: 0}}}": ("start", StartAtOffsets({"a": {0: 42, 1: 0}})),
    'start: {"offsets": {"a": {"0": 42, "1": 0}}}': ("start", StartAtOffsets({"a": {0: 42, 1: 0}})),
    "restart_from: earliest": ("restart_from", StartAt("earliest")),
    "rename: '{source}.{topic}'": ("rename", Template("{source}.{topic}")),
    "rename: {match: 'a-(.*)', to: 'b-\\1'}": ("rename", Match("a-(.*)", "b-\\1")),
    "rename: {orders: orders.copy, a: b}": ("rename", Table((("a", "b"), ("orders", "orders.copy")))),
}


@pytest.mark.parametrize("key", WORDS)
def test_keys_of_a_flow(key: str, tmp_path: Path) -> None:
    attribute, expected = WORDS[key]
    value: object = loaded(tmp_path, f"{FLOW}    {key}\n").flows["f"]
    for name in attribute.split("."):
        value = getattr(value, name)
    assert value == expected


WRONG = {
    "rpo: 5": '6:10: "rpo" is "5": a duration without its unit — write the unit: ms, s, m, h, d or w',
    "rpo: 0s": '6:10: "rpo" is "0s" — it takes more than zero',
    "rpo: [5s]": '6:10: "rpo" is a list — it takes a duration such as 500ms, 30s or 7d',
    "rpo:": '6:9: "rpo" has no value — give it a duration such as 500ms, 30s or 7d, or leave it out',
    "rpo: ~": '6:10: "rpo" has no value — give it a duration such as 500ms, 30s or 7d, or leave it out',
    "rate_limit: 50MB": '6:17: "rate_limit" is "50MB": a rate is a size per second — write it as 50MB/s',
    "rate_limit: 50mb/s": '6:17: "rate_limit" is "50mb/s": "mb" is no unit of a size — did you mean "MB"?',
    "follow: 5s": '6:13: "follow" is "5s" — it takes off, or a map with every',
    "follow: on": '6:13: "follow" is "on" — it takes off, or a map with every',
    "provenance: heders": '6:17: "provenance" is "heders", none of off, batch, headers or auto — '
    'did you mean "headers"?',
    "heartbeats: 'off'": '6:17: "heartbeats" is the text "off" — it takes off: remove the quotes',
    "acls: {sync: 'true'}": '6:18: "sync" is the text "true" — it takes true or false: remove the quotes',
    "acls: {sync: 1}": '6:18: "sync" is "1" — it takes true or false',
    "start: erliest": '6:12: "start" is "erliest" — did you mean "earliest"?',
    "start: {timestmp: x}": '6:12: "start" is a map — did you mean "timestamp"?',
    "start: {a: b}": '6:12: "start" is a map — it takes earliest, latest, {timestamp: …} or {offsets: …}',
    "start: {timestamp: 2026-01-01}": '6:24: "timestamp" is "2026-01-01": a time without its zone — '
    'write the zone: "Z" for UTC, or "+02:00"',
    "start: {timestamp: yesterday}": '6:24: "timestamp" is "yesterday": not a time — '
    "write it as 2026-01-01T00:00:00Z",
    "start: {timestamp: 1950-01-01T00:00:00Z}": '6:24: "timestamp" is "1950-01-01T00:00:00Z": '
    "a time before 1970 — Kafka's timestamps begin there",
    "start: {offsets: {a: {x: 1}}}": '6:27: "partition" is "x" — it takes a whole number, 0 or more',
    'start: {offsets: {a: {"x": 1}}}': '6:27: "partition" is "x" — it takes a whole number, 0 or more',
    'start: {offsets: {a: {"": 1}}}': '6:27: "partition" is "" — it takes a whole number, 0 or more',
    'start: {offsets: {a: {"0": 1, 0: 2}}}': '6:35: the key "0" stands here twice: '
    "first at line 11, column 27 — keep one of the two",
    "start: {offsets: {a: {0: '1'}}}": '6:30: "0" is the text "1" — it takes a number: remove the quotes',
    "start: {offsets: {a: {0: -1}}}": '6:30: "0" is -1 — it takes a whole number, 0 or more',
    "rename: ''": "6:13: {topic} must stand in a rename exactly once, it is not there — a rename must have a way back",
    "rename: {match: 'a-(.*)'}": '6:13: a rename by regex without "to" — add to: "b-\\\\1"',
    "rename: {a: c, b: c}": "6:13: a and b are both renamed to c: there would be no way back — "
    "a rename must have a way back",
    "promoted: '('": '6:15: "promoted" is "(", which lacks a ) — '
    "put a backslash before a sign meant as itself",
    "promoted: 'a['": '6:15: "promoted" is "a[", which lacks a ] — '
    "put a backslash before a sign meant as itself",
    "promoted: 'a\\'": '6:15: "promoted" is "a\\", which ends with a backslash — '
    "put a backslash before a sign meant as itself",
    "promoted: '*'": '6:15: "promoted" is "*", which repeats nothing with * — for every name write .*',
    "promoted: 'a{99999999999}'": '6:15: "promoted" is "a{99999999999}", which repeats more than 1,000 times — '
    "repeat fewer times",
    "start:": '6:11: "start" has no value — '
    "give it earliest, latest, {timestamp: …} or {offsets: …}, or leave it out",
    "heartbeats: ~": '6:17: "heartbeats" has no value — give it off, or a map with every, or leave it out',
    "configs: {exclude: {a: b}}": '6:24: "exclude" is a map — it takes the name of a topic setting, or a list of such',
}


@pytest.mark.parametrize("key", WRONG)
def test_wrong_values_of_a_flow(key: str, tmp_path: Path) -> None:
    assert mistakes(tmp_path, f"{FLOW}    {key}\n") == [WRONG[key]]


WRONG_SETTINGS = {
    "retention.ms: 7x": '"retention.ms" is "7x": "x" is no unit of a duration — '
    "it takes milliseconds or a duration such as 7d",
    "segment.bytes: 1gb": '"segment.bytes" is "1gb": "gb" is no unit of a size — did you mean "GB"?',
    "cleanup.policy: {a: b}": '"cleanup.policy" is a map — it takes text, a number, a duration or a size',
    "cleanup.policy:": '"cleanup.policy" is nothing — it takes text, a number, a duration or a size',
    "'a b': c": "the name of a setting is empty or holds a space — use Kafka's name of it",
}


@pytest.mark.parametrize("setting", WRONG_SETTINGS)
def test_wrong_settings(setting: str, tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, f"topics:\n  - name: a\n    cluster: dc1\n    config:\n      {setting}\n")
    assert found.split(": ", 1)[1] == WRONG_SETTINGS[setting]
