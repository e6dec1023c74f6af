"""Steps of features: the table, sentences that are none, and signed reports. No cluster is started."""

import json
from pathlib import Path

import pytest

from planner.cli.app import run
from planner.config import load
from planner.drill import promises
from planner.drill.features import needs_of
from planner.drill.routes import DrillRoute
from planner.drill.scenario_record import DrillAborted, ScenarioRecord
from planner.drill.scenario_run import ScenarioRun
from planner.drill.steps.check import wrong_sentences
from planner.drill.steps.language import STEPS, matching, nearest
from planner.drill.steps.sentences import table
from planner.drill.traffic import DrillRecord
from planner.model.diagnostic import ExitCode, Failure
from planner.model.drill import DrillReport, Scenario
from planner.render.reports.drill import document, steps_markdown, steps_screen
from planner.workflows.audit.drills import check_report, store_drill, stored_drills
from tests.commands import repl
from tests.fakes.tables import cases

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
KEY = "0123456789abcdef"
SAMPLES = {
    "topics": "every topic",
    **dict.fromkeys(("count", "all", "again", "skipped", "ms", "code"), "1,000"),
    **dict.fromkeys(("rate", "seconds"), "2.5"),
    "command": "salvage to-tokyo --replay",
    "text": "No changes.",
    "changes": "{rate_limit: 1MB/s}",
}
TOPOLOGY = """\
apiVersion: repl/v1
name: shop
clusters: {paris: {bootstrap: "a:1"}, tokyo: {bootstrap: "b:1"}}
flows: [{name: orders, from: paris, to: tokyo, topics: {include: [orders]}}]
"""


def test_the_documentation_has_every_step() -> None:
    assert steps_markdown(table()) in (DOCS / "drill-scenarios.md").read_text(), (
        "paste what repl drill --steps prints"
    )
    assert all(known.about.endswith(".") for known in STEPS)


def test_programs_get_every_step() -> None:
    printed = json.loads(repl("drill", "--steps", "--json").stdout)
    assert printed["format_version"] == 1
    assert {one["step"] for one in printed["steps"]} == {known.text for known in STEPS}


def test_on_a_terminal_each_step_is_a_line_with_what_it_does_below() -> None:
    lines = [line.plain for line in steps_screen(table())]
    at = lines.index("  {cluster} is lost")
    assert lines[at + 1].strip() == (
        "Every broker of the cluster is killed at once, as by a power cut. Its producers end."
    )
    assert not [line for line in lines if "|" in line or "`" in line]


def test_a_sentence_is_one_step() -> None:
    for one in STEPS:
        names = {name: SAMPLES.get(name, "a.b-c_1") for name in one.pattern.groupindex}
        sentence = one.text.format(**names)
        assert list(matching(sentence)) == [(one, names)]


@pytest.mark.parametrize(
    ("sentence", "topics"),
    [("every topic", ()), ("a", ("a",)), ("a, b.x and c-d", ("a", "b.x", "c-d")), ("a and b", ("a", "b"))],
)
def test_topics_are_listed_as_people_list_them(sentence: str, topics: tuple[str, ...]) -> None:
    ((known, names),) = matching(f"5 records are written to {sentence} at paris")
    assert known.values(names) == {"count": 5, "topics": topics, "cluster": "paris"}


def test_the_nearest_steps_are_those_with_the_same_words() -> None:
    assert nearest("paris is lostt")[0] == "{cluster} is lost"
    assert nearest("the group billing goes on at tokyo")[0] == "the group {group} resumes at {cluster}"


def test_what_is_done_to_a_cluster_says_what_it_needs() -> None:
    brokers, linked = needs_of(
        ["1 of 3 brokers of a are lost", "half of b is lost", "c is cut off", "a is lost"]
    )
    assert (brokers, linked) == ({"a": 3, "b": 2}, {"c"})


WRONG = {
    "names": (
        (
            "Feature: f\n  Scenario: s\n    When rome is lost\n    And paris is losst\n"
            "    Then salvage lists 1 records of nothing\n"
            "  Scenario: t\n    Given 5 records are written to order at paris\n"
        ),
        "names.feature:3: there is no cluster rome; there are: paris, tokyo",
        'names.feature:4: there is no step "paris is losst"; the nearest are: {cluster} is lost',
        "names.feature:5: there is no flow nothing; there are: orders",
        "names.feature:7: there is no topic order at paris; there are: orders",
    ),
    "comments": (  # Gherkin would take the line for one
        "Feature: f\n  Scenario: s\n    Whn paris is lost\n  Scenario: t\n",
        "in s: begin a step with Given, When, Then, And or But: Whn paris is lost",
        "comments.feature:4: the scenario t has no steps",
    ),
    "empty": ("", "empty.feature: there is no scenario"),
    "nonsense": ("nonsense\n", "nonsense.feature"),
    "twice": (
        "Feature: f\n  Scenario: s\n    When paris is lost\n  Scenario: s\n    When tokyo is lost\n",
        "twice.feature: two scenarios have one name: s",
    ),
}


def test_all_that_is_wrong_in_all_files_is_an_error_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    for name, (feature, *_) in WRONG.items():
        (tmp_path / f"{name}.feature").write_text(feature)
    options = {"PYTEST_ADDOPTS": "-v"}  # of the team's own tests
    done = repl("drill", str(tmp_path / "topology.yaml"), "--features", str(tmp_path), env=options)
    assert done.returncode == ExitCode.ERROR, done.stdout + done.stderr
    assert not (tmp_path / ".repl" / "drill").exists()
    missing = [text for _, *texts in WRONG.values() for text in texts if text not in done.stderr]
    assert not missing, done.stderr
    assert "repl drill --steps shows all steps" in done.stderr


def test_a_report_is_signed_with_the_key_of_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = DrillReport("shop", "sha256:0", "2026-11-22T10:00:00Z", "0.1", (), (Scenario("s", ""),))
    store_drill(report, document(report), tmp_path / "unsigned")
    (unsigned,) = (tmp_path / "unsigned").iterdir()
    monkeypatch.setenv("REPL_PLAN_KEY", KEY)
    file = tmp_path / "signed" / store_drill(report, document(report), tmp_path / "signed").file
    assert check_report(file) == "signed with this key"
    checked = repl("drill", "--check", str(file), "--json", env={"REPL_PLAN_KEY": KEY})
    assert json.loads(checked.stdout) == {
        "format_version": 1,
        "report": str(file),
        "signature": "signed with this key",
    }
    assert [
        (one.report.started_at, one.signature) for one in stored_drills(file.parent, checked=True)[0]
    ] == [(report.started_at, "signed with this key")]
    monkeypatch.setenv("REPL_PLAN_KEY_FILE", "nowhere")  # one key too many: the history needs none
    assert [drill.report.started_at for drill in stored_drills(file.parent)[0]] == [report.started_at]
    monkeypatch.delenv("REPL_PLAN_KEY_FILE")

    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**json.loads(file.read_text()), "passed": False}))
    for one, said in ((unsigned, "is not signed"), (changed, "was changed, or is signed with another key")):
        with pytest.raises(Failure, match=said) as refused:
            check_report(one)
        assert refused.value.exit_code == ExitCode.REFUSED
    monkeypatch.delenv("REPL_PLAN_KEY")
    with pytest.raises(Failure, match="not checked: no key is set"):
        check_report(file)
    with pytest.raises(Failure, match="can't be read as a report"):
        check_report(tmp_path / "nothing.json")


def test_a_live_drill_names_every_cluster_that_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY.replace("a:1", "127.0.0.1:1").replace("b:1", "127.0.0.1:2"))
    done = repl("drill", str(file), "--against", "live", env={"REPL_HOME": str(tmp_path / "home")})
    assert done.returncode == 1
    assert "paris does not answer" in done.stderr
    assert "tokyo does not answer" in done.stderr
    assert not (tmp_path / "home" / "drills").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--against live --features .", "--features are run on lab clusters"),
        ("--canaries", "--canaries are written to live clusters: add --against live"),
    ],
)
def test_options_that_do_not_go_together(options: str, why: str, tmp_path: Path, capsys) -> None:
    assert run(["drill", str(tmp_path), *options.split()]) == ExitCode.ERROR
    assert why in capsys.readouterr().err


class TwoSides(ScenarioRun):
    """A scenario whose flow copies orders of paris to tokyo as paris.orders; values are given."""

    def __init__(self, paris: dict[int, list[bytes]], tokyo: dict[int, list[bytes]]) -> None:
        ScenarioRecord.__init__(self, lambda _text: None)
        self._values = {("paris", "orders"): paris, ("tokyo", "paris.orders"): tokyo}

    def routes(self, *_clusters: str) -> list[DrillRoute]:
        return [DrillRoute("flow", "paris", "tokyo", "orders", "paris.orders", transformed=False)]

    def partitions(self, cluster: str, topic: str, ends: object = None) -> dict[int, list[DrillRecord]]:
        found = self._values[cluster, topic]
        return {at: [DrillRecord(one, one) for one in some] for at, some in found.items()}


@pytest.mark.parametrize(
    ("tokyo", "kept"),
    [
        ({0: [b"1", b"2"], 1: [b"3"]}, True),
        ({0: [b"2", b"1"], 1: [b"3"]}, False),  # another order
        ({0: [b"1", b"2"], 1: [b"3", b"3"]}, False),  # one twice
        ({0: [b"1"], 1: [b"3"]}, False),  # one is missing
        ({0: [b"1", b"2", b"3"]}, False),  # in another partition
        ({0: [b"1", b"2"], 1: [b"3"], 2: []}, True),  # one more partition, without records
    ],
)
def test_records_are_compared_partition_by_partition_in_order(tokyo, kept) -> None:
    sides = TwoSides({0: [b"1", b"2"], 1: [b"3"]}, tokyo)
    assert promises.in_order(sides, "paris.orders", "tokyo", "paris") is kept
    assert promises.in_order(sides, "orders", "paris", "tokyo") is kept
    with pytest.raises(DrillAborted, match="no flow copies payments between tokyo and paris"):
        promises.in_order(sides, "payments", "tokyo", "paris")


# Names in sentences are compared with the topology before anything is started.


def wrong_in(folder: Path, *sentences: str) -> list[tuple[int, str]]:
    (folder / "topology.yaml").write_text(
        TOPOLOGY.replace("[orders]", "[orders, payments]").replace(
            "to: tokyo,", 'to: tokyo, rename: "p.{topic}",'
        )
    )
    return list(wrong_sentences(load(folder), sentences, lambda _: True))


HAS_READ = "the group billing has read 1 records of orders at paris"


@cases(
    "sentences problems",
    {
        "every topic that is not there": (
            ("1 records are written to order and payments at paris", "order at paris holds 1 records"),
            [(at, "there is no topic order at paris; there are: orders, payments") for at in (0, 1)],
        ),
        "a mirror has its own name": (
            ("orders at tokyo holds 1 records", "p.orders at tokyo holds 1 records"),
            [(0, "there is no topic orders at tokyo; there are: p.orders, p.payments")],
        ),
        "the other cluster": (
            ("orders at paris holds the records of rome, each once and in order",),
            [(0, "there is no cluster rome; there are: paris, tokyo")],
        ),
        "a group that has read nothing": (
            (HAS_READ, "the group audit resumes at tokyo", "the group billing resumes at tokyo"),
            [(1, "group audit has read nothing before; groups that have: billing")],
        ),
        "topics that are not to be there, or are internal": (
            (
                "x does not exist at tokyo",
                "__x at tokyo holds 1 records",
                "p.orders.quarantine at tokyo holds 1 records",
            ),
            [],
        ),
        "topics that an operator made": (
            ("an operator creates x at paris with 1 partitions", "1 records are written to x at paris"),
            [],
        ),
        "topics that were declared": (
            ("the topic x at paris is changed to {partitions: 2}", "1 records are written to x at paris"),
            [],
        ),
        "topics that a restore made": (
            ("the engineer runs repl restore archive --to tokyo", "old.orders at tokyo holds 1 records"),
            [],
        ),
        "what a step of the team made": (
            ("the team makes a topic", "x at tokyo holds 1 records", "the group y resumes at tokyo"),
            [],
        ),
    },
)
def test_names_that_are_not_there_are_reported_before_anything_is_started(
    sentences, problems, tmp_path: Path
) -> None:
    assert wrong_in(tmp_path, *sentences) == problems
