"""Rules in CEL: what they see, what they refuse, and that no expression hangs or fills the machine."""

import resource
from pathlib import Path
from typing import Any

import pytest

from planner.config.load import load_rules
from planner.diff.values import as_brokers_read
from planner.model.address import Kind, topic_address
from planner.model.change import Action, Change
from planner.model.diagnostic import ExitCode, Failure, Severity, worst
from planner.model.plan import Plan
from planner.model.topology import Cluster, Job, Policies, Rule
from planner.plan.make import plan_from
from planner.state import planfile
from planner.workflows import rules
from planner.workflows.rules import check_rules, with_policy_verdicts
from runtime.contract.spec.transform import TransformSpec
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, flow, inputs, observed, topology
from tests.planner.config.given import written
from tests.planner.plan.jobs import applied
from tests.planner.plan.jobs import plan as plan_of

FRIDAY, MONDAY = 1_795_780_800, 1_796_040_000  # 2026-11-27 and 2026-11-30, noon in UTC


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    def set_day(seconds: int) -> None:
        monkeypatch.setattr("planner.workflows.rules.time.time", lambda: seconds)

    monkeypatch.delenv(rules.POLICY, raising=False)
    return set_day


def rule(expression: str, *, warn: bool = False, name: str = "r") -> Rule:
    return Rule(name, "no", warn=expression) if warn else Rule(name, "no", deny=expression)


def planned(*changes: Change, labels: Any = None, rules: tuple[Rule, ...] = ()) -> Plan:
    clusters = [Cluster(name, bootstrap=f"{name}:9092", labels=one) for name, one in (labels or {}).items()]
    shop = topology(policies=Policies(rules=rules), clusters=clusters)
    return replace(plan_from(inputs(shop, observed(cluster()))), changes=changes)


def change(name: str, action: Action = Action.CREATE, **after: object) -> Change:
    return Change(topic_address("dc1", name), action, "declared", after=after or None)


def cpu_s() -> float:
    """The CPU time of this process and of its children that ended: no other program changes it."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def refused(plan: Plan) -> list[str]:
    return [one.summary for one in plan.diagnostics if one.severity is Severity.ERROR]


FILE = Path("plans/pipelines/policy.yaml")
LABELS = {"dc1": {"env": "prod", "region": "eu"}, "dc2": {"region": "us"}}


@pytest.mark.parametrize(
    ("day", "planned_changes", "broken"),
    [
        (FRIDAY, [change("a", Action.DELETE)], ["no-deletes-on-fridays"]),
        (FRIDAY, [change("a", replication=3)], []),
        (MONDAY, [change("a", Action.DELETE)], []),
        (MONDAY, [change("a", replication=2), change("b", replication=3)], ["three-replicas-in-prod"]),
    ],
)
def test_the_rules_that_the_docs_show(on, day: int, planned_changes: list[Change], broken: list[str]) -> None:
    on(day)
    plan = with_policy_verdicts(planned(*planned_changes, labels=LABELS), [FILE])
    assert [text.rpartition("(rule ")[2][:-1] for text in refused(plan)] == broken
    assert worst(plan.diagnostics) is (ExitCode.REFUSED if broken else ExitCode.DONE)


@pytest.mark.parametrize(
    ("job", "passes"),
    [
        ({}, True),
        ({"conf": {"spark.network.timeout": "60s"}, "options": {"queue": "etl"}}, True),
        ({"conf": {"spark.driver.extraJavaOptions": "-javaagent:/tmp/evil.jar"}}, False),
        ({"options": {"python": "/tmp/evil"}}, False),
    ],
)
def test_a_job_runs_no_code_of_a_topology(on, job: dict[str, Any], passes: bool) -> None:
    on(MONDAY)
    shop = replace(topology(flow()), jobs={"dc2": Job("dc2", **job)})
    found = refused(with_policy_verdicts(plan_of(shop), [FILE]))
    assert ["(rule jobs-run-no-other-code)" in one for one in found] == ([] if passes else [True])


@pytest.mark.parametrize(
    ("transform", "region", "passes"),
    [
        (None, "us", False),
        (TransformSpec(set={"value.name": "'x'"}), "us", False),
        (TransformSpec(set={"value.email": "sha2(value.email, 256)"}), "us", True),
        (None, "eu", True),
        (None, None, True),
    ],
)
def test_a_flow_that_leaves_the_eu_masks_email(on, transform, region, passes: bool) -> None:
    """Planned from a topology: also a flow that runs as declared is judged."""
    on(MONDAY)
    labels = {"region": region} if region else {}
    clusters = (
        Cluster("dc1", bootstrap="dc1:9092", labels={"region": "eu"}),
        Cluster("dc2", bootstrap="dc2:9092", labels=labels),
    )
    shop = topology(flow(transform=transform), clusters=clusters)
    for made in (plan_of(shop), plan_of(shop, applied(shop))):
        assert [change.address.name for change in made.changes if change.address.kind is Kind.FLOW]
        found = refused(with_policy_verdicts(made, [FILE]))
        assert ["(rule masked-from-eu-to-us)" in one for one in found] == ([] if passes else [True])


ENDLESS = """
resource.type == "topic" && has(resource.change.values)
&& resource.change.values.config[?"retention.ms"].orValue(0) == -1
"""


@pytest.mark.parametrize(("written", "broken"), [("-01", True), ("1", False)])
def test_a_rule_sees_a_setting_as_brokers_read_it(on, written: str, broken: bool) -> None:
    topic = change("a", config={"retention.ms": written})
    assert bool(refused(with_policy_verdicts(planned(topic, rules=(rule(ENDLESS),))))) is broken


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        ("retention.ms", " 604800000", 604_800_000),
        ("min.cleanable.dirty.ratio", "0.50", 0.5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "delete, compact", ["compact", "delete"]),
        ("compression.type", "lz4", "lz4"),
        ("vendor.limit", "-01", "-01"),
        ("retention.ms", "NaN", "NaN"),
        ("retention.ms", "1e999999999", "1e999999999"),
        ("retention.ms", None, None),
    ],
)
def test_a_setting_as_data(key: str, written: str | None, read: object) -> None:
    assert as_brokers_read({key: written}) == {key: read}


def test_a_refusal_names_the_changes_the_message_and_the_place(on, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """\
        rules:
          - name: named
            deny: resource.name.startsWith("t")
            message: topics begin with the name of their team
        """,
    )
    (alone,) = with_policy_verdicts(planned(change("team.a"), change("a")), [file]).diagnostics
    assert alone.address == topic_address("dc1", "team.a")
    (found,) = with_policy_verdicts(planned(change("team.a"), change("t2"), change("a")), [file]).diagnostics
    assert found.address is None
    assert found.summary == (
        "topic.dc1.team.a, topic.dc1.t2: topics begin with the name of their team (rule named)"
    )
    assert str(found.source) == f"{file}:3:11"


def test_a_warning_lets_the_plan_pass(on) -> None:
    plan = with_policy_verdicts(planned(change("a"), rules=(rule("plan.summary.add > 0", warn=True),)))
    assert [(one.severity, one.summary) for one in plan.diagnostics] == [(Severity.WARNING, "no (rule r)")]
    assert not plan.errored


def test_a_saved_plan_keeps_its_rules_and_labels(on, tmp_path: Path) -> None:
    plan = planned(change("a"), labels=LABELS, rules=(rule('plan.cluster_labels.dc1.env == "prod"'),))
    planfile.write(plan, tmp_path / "plan")
    again = planfile.load(tmp_path / "plan").plan()
    assert refused(with_policy_verdicts(again)) == ["no (rule r)"]


def test_every_command_is_judged_by_the_files_of_the_environment(on, tmp_path: Path, monkeypatch) -> None:
    file = written(tmp_path, "rules: [{name: r, deny: plan.changed, message: frozen}]\n")
    monkeypatch.setenv(rules.POLICY, f" {file}, ")
    assert refused(with_policy_verdicts(planned(change("a")))) == ["frozen (rule r)"]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("plan.a +", "1:9: Syntax error"),
        ("foo == 1", "1:1: undeclared reference to 'foo'"),
        ('resource.name == "a" && fo', "1:25: undeclared reference to 'fo'"),
        ('"a" + 1', "1:5: found no matching overload"),
        ("1 + 1", "of the type int"),
        ("(" * 40 + "true" + ")" * 40, "recursion limit exceeded"),
    ],
)
def test_a_rule_that_can_not_be_compiled(expression: str, problem: str) -> None:
    with pytest.raises(Failure) as failed:
        check_rules([rule("plan.changed"), rule(expression, name="wrong")])
    (found,) = failed.value.diagnostics
    assert "the rule wrong can't be computed: " in found.summary
    assert problem.lower() in found.summary.lower()
    assert "\n" not in found.summary


CHANGES = "plan.resource_changes"


def repeated(times: int) -> str:
    """An expression whose value has 160 characters, made eight times as long so many times."""
    text = f"'{'a' * 160}'"
    for _ in range(times):
        text = f"[{text}].map(a, a + a + a + a + a + a + a + a)[0]"
    return text


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("plan.labels_of.x == 1", "Key not found"),
        ("resource.change.after.x == 1", "for topic.dc1.t0: Key not found"),
        ("plan.topology", "a rule is true or false"),
        (
            "plan.resource_changes.exists(a, plan.resource_changes.exists(b, a.name == b.name + 'x'))",
            "Iteration budget exceeded",
        ),
        (f"{repeated(8)}.matches('b$')", "more than 10 s of CPU or 1 GiB of memory"),
        (
            f"[{repeated(6)}].exists(a, {CHANGES}.exists(b, {CHANGES}.exists(c, a.matches('(a|b)*c$'))))",
            "more than 10 s of CPU or 1 GiB of memory",
        ),
        ("'" + "a" * 3_000 + "!'.matches('(a+)+$') || resource.name == 'x'", None),
    ],
)
def test_no_expression_hangs_or_fills_the_machine(on, expression: str, problem: str | None) -> None:
    many = planned(*(change(f"t{number}", replication=3) for number in range(300)), rules=(rule(expression),))
    begun = cpu_s()
    plan = with_policy_verdicts(many)
    found = refused(plan)
    assert cpu_s() - begun < 12
    assert (found == []) if problem is None else (problem in found[0])
    assert all(("ask has(" in one.hint) is ("not found" in one.summary) for one in plan.diagnostics)


@pytest.mark.slow
def test_ten_thousand_changes_are_judged_in_seconds(on) -> None:
    many = planned(
        *(change(f"t{number}", replication=3, partitions=12) for number in range(10_000)), labels=LABELS
    )
    begun = cpu_s()
    plan = with_policy_verdicts(many, [FILE])
    assert cpu_s() - begun < 20
    assert refused(plan) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("rules: [{name: r, message: m}]", "needs one of deny and warn"),
        ("rules: [{name: r, message: m, deny: 'true', warn: 'true'}]", "needs one of deny and warn"),
        ("rules: [{name: r, denny: 'true', message: m}]", 'unknown key "denny" in a rule'),
        ("max_deletes: 3", 'unknown key "max_deletes" in a policy file'),
        ("", "one document"),
        (
            "rules: [{name: r, message: m, deny: 'true'}, {name: r, message: m, deny: 'true'}]",
            'the rule "r" stands in two places',
        ),
    ],
)
def test_a_policy_file_that_is_wrong(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(Failure, match=wrong):
        load_rules(written(tmp_path, text))


def test_without_the_extra_one_sentence_says_what_to_type(on, monkeypatch) -> None:
    monkeypatch.setattr("runtime.contract.extras.find_spec", lambda _: None)
    with pytest.raises(Failure) as failed:
        with_policy_verdicts(planned(rules=(rule("true"),)))
    (found,) = failed.value.diagnostics
    assert found.summary == "a rule in CEL needs the extra policies, which is not installed"
    assert "'kafka-repl[policies]'" in found.hint
