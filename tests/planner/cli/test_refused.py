"""Commands that change flows, where nothing comes of it: the file stays, and the way out is told."""

from pathlib import Path

import pytest

from planner.cli.app import run
from planner.config import load
from planner.graph.routes import pending_failbacks
from planner.model.diagnostic import ExitCode, Failure
from planner.workflows.flows.edits import TopologyEdits
from planner.workflows.flows.failover import failback_edit
from planner.workflows.flows.states import chosen_of
from tests.fakes.health import flow_health, topic_health
from tests.fakes.tables import cases
from tests.runtime.files.backups import ONE, WrittenBackup, text_of
from tests.topologies import SHOP_HEAD, shop

THERE = "  - {name: there, from: dc1, to: dc2, topics: {include: ['pay.*']}}   # the way there\n"
RESTS = "  - {name: rests, from: dc1, to: dc2, topics: {include: ['old.*']}, state: paused}\n"
GONE = "  - {name: gone, from: dc1, to: dc2, topics: {include: gone}, state: failed_over}\n"
BACK = "  - {name: home, from: dc2, to: dc1, topics: {include: .*}, reverse_of: gone, state: failed_over}\n"
TAKEN = "  - {name: gone-back, from: dc2, to: dc1, topics: {include: z}}\n"
INTO_FILES = "  - {name: out, from: dc1, to: lake, topics: {include: x}}\n"
FROM_FILES = "  - {name: in, from: {file: /in, format: json}, to: dc1, topics: {to: y}}\n"
LAKE = "endpoints: {lake: {file: /lake, format: json}}\n"
ALL = THERE + RESTS + GONE
DOWN = "nothing listens there"
ERROR, REFUSED = ExitCode.ERROR, ExitCode.REFUSED


def refused(file: Path, words: str, code: ExitCode, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text()
    assert run([*words.split(), "--path", str(file), "--auto-approve"]) == code
    assert says in capsys.readouterr().err
    assert file.read_text() == before


# What a command says to a topology of these flows, below the flows and the exit code.
SAID = {
    (THERE, ERROR): {
        "failback dc3": "there is no cluster dc3 in this topology — did you mean dc",
        "failback dc2": "no flow out of dc2 was promoted or failed over",
    },
    (THERE, REFUSED): {
        "failback dc1": "no flow out of dc1 was promoted or failed over",
        "failback dc1 --switch": "no flow out of dc1 was promoted or failed over",
    },
    (GONE, REFUSED): {"failback dc1 --switch": "nothing of flow.gone was copied back yet"},
    (GONE, ERROR): {"failback dc1": "nothing can be copied back to dc1 yet"},
    (GONE + BACK, REFUSED): {"failback dc1 --switch": "once dc2 is back: repl failback dc2"},
    (ALL, ERROR): {
        "pause ther": "there is no flow ther in this topology — did you mean there?",
        "pause x": "there is no flow x in this topology — its flows: gone, rests, there",
        "failover y": "there is no cluster y in this topology — its clusters: dc1, dc2",
        "pause there --timeout 2s": DOWN,
        "resume there --timeout 2s": DOWN,
        "promote ther --topics pay": "did you mean there?",
        "promote there --topics pay(": "no regular expression",
        "promote there --topics pay --timeout 2s": DOWN,
        "salvage gone --replay --timeout 2s": f"{DOWN} — look at the cluster's bootstrap",
        "salvage gone --to aside": "--to goes with --replay",
        "salvage gone --replay --export x": "--export and --replay are two commands",
    },
    (INTO_FILES + FROM_FILES + LAKE, ERROR): {
        "promote out --topics x": "flow out goes into the files of lake — this is for flows between clusters",
        "promote in --topics y": "flow in comes from the files of in — this is for flows between clusters",
    },
    (ALL, REFUSED): {
        "pause gone": "flow.gone is failed_over and can't be paused",
        "resume gone": "flow.gone is failed_over and can't be resumed",
        "promote rests --topics old": "repl resume rests first",
        "promote gone --topics gone": "flow.gone is failed_over and can't be promoted by topics",
        "salvage there --replay": "flow.there is active: it copies what is left",
        "salvage rests --replay": "flow.rests is paused: it copies what is left",
    },
}


@pytest.mark.parametrize(
    ("flows", "code", "words", "says"),
    [
        pytest.param(flows, code, words, says, id=words)
        for (flows, code), commands in SAID.items()
        for words, says in commands.items()
    ],
)
def test_nothing_comes_of_it(flows, code, words, says, tmp_path, capsys) -> None:
    refused(shop(tmp_path, flows), words, code, says, capsys)


def test_the_flow_of_a_failback_is_the_one_that_is_there_or_has_a_name_of_its_own(tmp_path: Path) -> None:
    file = shop(tmp_path, GONE + BACK.replace("failed_over", "promoted"))
    topology = load(file, ())
    edits = TopologyEdits()
    failback_edit(edits, topology, pending_failbacks(topology, "dc1"))
    assert edits.texts == {file: SHOP_HEAD + GONE + BACK.replace("failed_over", "active")}
    topology = load(shop(tmp_path, GONE + TAKEN), ())
    with pytest.raises(Failure, match="would be gone-back, and another flow has that name"):
        failback_edit(edits, topology, pending_failbacks(topology, "dc1"))


# Which topics a promotion is about.


STATES = {"pay.eu": "caught_up", "pay.us": "caught_up", "orders": "caught_up", "old": "promoted"}
FLOW = flow_health(*(topic_health(topic=name, state=state) for name, state in STATES.items()), name="there")


@cases(
    "pattern found says",
    {
        "whole names": (r"pay\..*", ["pay.eu", "pay.us"], ""),
        "not what was promoted": ("orders|old", ["orders"], ""),
        "everything": (".*", None, "promote all of it: repl promote there"),
        "everything that is left": ("(pay.*)|orders", None, "promote all of it: repl promote there"),
        "nearly a topic": ("pay.e", None, "matches no topic of flow.there — did you mean pay.eu?"),
        "no topic": ("zzz", None, "matches no topic of flow.there — it copies orders, pay.eu, pay.us"),
        "promoted before": ("old", None, "old of flow.there was promoted before"),
    },
)
def test_the_topics_of_a_promotion(pattern: str, found: list[str] | None, says: str) -> None:
    if found is not None:
        assert [one.topic for one in chosen_of(FLOW, pattern)] == found
        return
    with pytest.raises(Failure) as failure:
        chosen_of(FLOW, pattern)
    assert says in str(failure.value)


# A restore, before any cluster is read.

NOON = 1_769_860_800_000  # 2026-01-31T12:00:00Z


def declared(folder: Path, form: str = "raw") -> Path:
    flow = "  - {name: f, from: dc1, to: archive, topics: {include: orders}}\n"
    return shop(folder, flow + f"endpoints:\n  archive: {{file: {folder}/archive, format: {form}}}\n")


@pytest.fixture
def backup(tmp_path: Path) -> WrittenBackup:
    (tmp_path / "archive").mkdir()
    made = WrittenBackup(tmp_path / "archive")
    made.commit(NOON, ONE, 2, text_of(0, [NOON, NOON + 1000]))
    made.commit(NOON + 5000, ONE, 3, text_of(2, [NOON + 2000]))
    return made


def log(backup: WrittenBackup) -> list[Path]:
    return sorted((backup.folder / "_repl/f/log").iterdir())


def edited(backup: WrittenBackup) -> None:
    log(backup)[0].write_bytes(log(backup)[0].read_bytes().replace(b'"records":2', b'"records":3'))


def cut_off(backup: WrittenBackup) -> None:
    log(backup)[-1].write_bytes(log(backup)[-1].read_bytes()[:-20])


def removed(backup: WrittenBackup) -> None:
    log(backup)[0].unlink()


def unmounted(backup: WrittenBackup) -> None:
    backup.folder.rename(backup.folder.with_name("elsewhere"))


def second_flow(backup: WrittenBackup) -> None:
    WrittenBackup(backup.folder, flow="g").commit(NOON, ONE, 0)


def other_format(backup: WrittenBackup) -> None:
    WrittenBackup(backup.folder, "json", "j").commit(NOON, ONE, 0)


def untouched(_backup: WrittenBackup) -> None:
    return


@cases(
    "change words code says",
    {
        "edited": (edited, "--to dc2", REFUSED, "it was cut off or edited"),
        "cut off": (cut_off, "--to dc2", REFUSED, "it was cut off or edited"),
        "a commit removed": (removed, "--to dc2", REFUSED, "the commit 1 is missing"),
        "not mounted": (unmounted, "--to dc2", ERROR, "is not there — mount the folder on this machine"),
        "two flows": (second_flow, "--to dc2", ERROR, "holds the backups of several flows: f, g"),
        "another format": (other_format, "--to dc2 --flow j", REFUSED, "flow j has written json files"),
        "no such flow": (untouched, "--to dc2 --flow x", ERROR, "holds no backup of a flow x — its flows: f"),
        "no such topic": (
            untouched,
            "--to dc2 --topics o",
            ERROR,
            "holds no topic that matches o — its topics: orders",
        ),
        "too early": (
            untouched,
            "--to dc2 --until 2026-01-31T11:59:59Z",
            ERROR,
            "holds no record up to 2026-01-31T11:59:59Z — its first record is of 2026-01-31T12:00:00Z",
        ),
        "no time": (untouched, "--to dc2 --until noon", ERROR, "noon"),
        "two names": (untouched, "--to dc2 --prefix a --rename {topic}b", ERROR, "give one of them"),
        "one name for all": (untouched, "--to dc2 --rename b", ERROR, "--rename holds {topic} once"),
        "a cluster that is down": (untouched, "--to dc2 --timeout 2s", ERROR, "dc2 can't be read"),
        "no cluster": (untouched, "--to dc3", ERROR, "there is no cluster dc3 in this topology"),
        "no destination": (untouched, "", ERROR, "--to"),
    },
)
def test_a_restore_is_refused(change, words, code, says, backup, tmp_path, capsys) -> None:
    change(backup)
    refused(declared(tmp_path), f"restore archive {words}", code, says, capsys)


def test_only_raw_files_of_an_endpoint_are_a_backup(tmp_path, capsys) -> None:
    says = "the endpoint archive holds parquet files, and only raw files are a backup"
    refused(declared(tmp_path, "parquet"), "restore archive --to dc2", REFUSED, says, capsys)
    says = "there is no endpoint nowhere in this topology"
    refused(declared(tmp_path), "restore nowhere --to dc2", ERROR, says, capsys)
