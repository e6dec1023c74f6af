"""Only the plan that was approved is applied: by its digest, and by a signature where there is a key."""

import json
from pathlib import Path

import pytest

from planner.model.diagnostic import Failure, error
from planner.model.observed import Observed, Unreachable
from planner.model.plan import ApplyResult, Plan, digest
from planner.model.step import NOTHING_DONE
from planner.model.topology import Cluster, Policies
from planner.plan.document import json_tree
from planner.render.plan.documents import html, markdown
from planner.state import planfile
from planner.state.planfile import KEY, KEY_FILE, key_of
from planner.workflows.applying import apply as applying
from planner.workflows.applying.session import ApplySession
from tests.fakes.states import with_inputs
from tests.security.conftest import Command
from tests.security.plans import changed, honest, shop, state

SECRET = "0123456789abcdef0123456789abcdef"
OTHER = "another-key-another-key-another-key"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.delenv(KEY_FILE, raising=False)


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that reached the executor, which needs clusters."""
    plans: list[Plan] = []

    async def execute(plan: Plan, *_: object, **__: object) -> ApplyResult:
        plans.append(plan)
        return ApplyResult(plan, NOTHING_DONE)

    monkeypatch.setattr(applying, "execute", execute)
    return plans


def saved(tmp_path: Path, plan: Plan | None = None, key: str | None = None) -> tuple[Path, str]:
    file = tmp_path / "plan"
    return file, planfile.write(plan or honest(), file, None if key is None else key.encode())


@pytest.mark.parametrize(
    "edited",
    [
        with_inputs(honest(), created_at="2026-01-02T00:00:00Z"),
        changed(honest(), topics=honest().inputs.topology.topics[:-1]),
        changed(honest(), policies=Policies(max_deletes=100)),
        changed(honest(), clusters={**shop().clusters, "dc2": Cluster("dc2", bootstrap="evil:9092")}),
        with_inputs(honest(), observed=Observed({**state().clusters, "dc2": Unreachable("dc2", "silent")})),
        with_inputs(honest(), folder="/tmp/evil"),
    ],
)
def test_any_other_plan_is_refused_naming_both_digests(
    edited: Plan, tmp_path: Path, executed: list[Plan], command: Command
) -> None:
    """The digest covers the topology, how clusters are reached, the policies, and what the plan saw."""
    wanted = digest(honest())
    file, seal = saved(tmp_path, edited)
    ended = command("apply", file, "--expect", wanted)
    assert (ended.code, wanted in ended.err, seal in ended.err, executed) == (3, True, True, [])


@pytest.mark.parametrize("expect", ["", "sha256:", "latest", "sha256:" + "z" * 64, "sha256:" + "a" * 63])
def test_what_is_no_digest(expect: str, tmp_path: Path, executed: list[Plan], command: Command) -> None:
    assert command("apply", saved(tmp_path)[0], "--expect", expect).code == 1
    assert executed == []


def test_a_topology_has_no_digest_to_expect(tmp_path: Path, command: Command) -> None:
    ended = command("apply", tmp_path, "--expect", digest(honest()))
    assert (ended.code, "--expect names a saved plan" in ended.err) == (1, True)


@pytest.mark.parametrize("option", ["--target", "--var-file"])
def test_a_saved_plan_is_executed_as_it_is(
    option: str, tmp_path: Path, executed: list[Plan], command: Command
) -> None:
    file, seal = saved(tmp_path)
    (tmp_path / "vars").write_text("{}\n")
    value = "topic.dc1.orders" if option == "--target" else tmp_path / "vars"
    ended = command("apply", file, "--expect", seal, option, value)
    assert (ended.code, executed) == (1, [])
    assert "leave out --var-file and --target" in ended.err


def test_a_warning_of_the_operators_rules_leaves_the_plan_that_was_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """The history and a later apply know the plan by the digest that people approved."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{name: late, warn: plan.changed, message: the day is late}]\n")
    file, seal = saved(tmp_path)
    digests: list[str] = []

    def carry_out(session: ApplySession) -> None:
        digests.append(digest(session.plan))
        raise Failure(error("no cluster is here"))

    monkeypatch.setenv("DC1_PASSWORD", "secret")
    monkeypatch.setattr(ApplySession, "carry_out", carry_out)
    ended = command("apply", file, "--expect", seal, "--policy", policy)
    assert (ended.code, digests) == (1, [seal])
    assert "the day is late (rule late)" in ended.err


def test_the_digest_stands_wherever_a_plan_is_approved(tmp_path: Path, command: Command) -> None:
    file, seal = saved(tmp_path)
    plan = planfile.load(file).plan()
    ended = command("show", file)
    assert (ended.code, f"Plan digest: {seal}\nPlan signature: not signed\n" in ended.out) == (0, True)
    assert f"Plan digest: `{seal}`" in markdown(plan)
    assert f"Plan digest: <code>{seal}</code>" in html(plan)
    assert json_tree(plan)["digest"] == seal == digest(plan)


def test_the_steps_are_shown_before_they_are_executed(
    tmp_path: Path, executed: list[Plan], command: Command
) -> None:
    ended = command("apply", saved(tmp_path)[0])
    assert ended.code == 0
    for said in (
        "at dc1: dc1:9092, cluster id cluster-dc1",
        "create topic.dc1.new: partitions 12, replication 3; retention.ms=",
        "delete topic.dc1.doomed: with its records (topic id id:doomed)",
        "register topic.dc1.new: protected",
        *(str(step.address) for step in honest().steps),
    ):
        assert said in ended.out


@pytest.mark.parametrize(
    ("signed_with", "key", "code", "shown"),
    [
        (SECRET, SECRET, 0, "signed with this key"),
        (SECRET, OTHER, 3, "signed with another key"),
        (SECRET, None, 0, "signed, and not checked: no key is set"),
        (None, SECRET, 3, "not signed"),
        (None, None, 0, "not signed"),
    ],
)
def test_a_key_requires_a_signature_that_fits_and_show_says_how_it_is_signed(
    signed_with: str | None,
    key: str | None,
    code: int,
    shown: str,
    tmp_path: Path,
    executed: list[Plan],
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    file, _ = saved(tmp_path, key=signed_with)
    if key is not None:
        monkeypatch.setenv(KEY, key)
    ended = command("apply", file)
    assert (ended.code, bool(executed)) == (code, code == 0)
    assert ("signature is not checked" in ended.err) is (signed_with is not None and key is None)
    assert SECRET not in ended.err + ended.out
    assert OTHER not in ended.err + ended.out
    assert f"Plan signature: {shown}\n" in command("show", file).out
    assert json.loads(command("show", file, "--json").out)["signature"] == shown


def test_a_signature_of_another_plan_does_not_fit(
    tmp_path: Path, executed: list[Plan], monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """Copied from a plan that was signed into one that was not."""
    file, _ = saved(tmp_path, key=SECRET)
    signature = json.loads(file.read_text())["signature"]
    edited, _ = saved(tmp_path, with_inputs(honest(), created_at="2026-01-02T00:00:00Z"))
    edited.write_text(json.dumps({**json.loads(edited.read_text()), "signature": signature}))
    monkeypatch.setenv(KEY, SECRET)
    assert (command("apply", edited).code, executed) == (3, [])


def test_a_key_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET + "\n")

    assert key_of({KEY_FILE: str(tmp_path / "key")}) == key_of({KEY: SECRET}) == SECRET.encode()
    assert key_of({}) is None


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({KEY: ""}, "key of 0 bytes"),
        ({KEY: "short"}, "key of 5 bytes"),
        ({KEY: "x" * 5_000}, "16 to 4096"),
        ({KEY: SECRET, KEY_FILE: "/dev/null"}, "both set"),
        ({KEY_FILE: "/nowhere/key"}, "can't be read"),
        ({KEY_FILE: "/dev/zero"}, "16 to 4096"),
    ],
)
def test_a_key_that_can_not_be_used(environment: dict[str, str], why: str) -> None:
    with pytest.raises(Failure, match=why) as failure:
        key_of(environment)
    assert SECRET not in str(failure.value)
