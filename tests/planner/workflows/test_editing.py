"""An edit of the topology is planned in memory; files are written right before the first step, or never."""

import socket
import stat
from pathlib import Path

import pytest

from planner.config.edit import with_states
from planner.config.files import write_edited
from planner.kafka import ClusterEndpoint, run
from planner.model.diagnostic import Failure
from planner.model.plan import ApplyResult
from planner.workflows.applying.apply import execute
from planner.workflows.applying.session import ApplySession
from planner.workflows.flows.edits import TopologyEdits, states_edited
from planner.workflows.interaction import UNATTENDED, Interaction, approve_all
from planner.workflows.requests import ChangeRequest, TopologyRequest
from planner.workflows.topology import load_and_lint
from runtime.contract.spec.naming import REGISTRY
from tests.fakes.applying import tools
from tests.fakes.old_broker import OldBroker
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.fakes.tables import cases
from tests.planner.observe.test_old_brokers import KAFKA_2_3
from tests.planner.plan.jobs import plan
from tests.topologies import shop

QUICK = ChangeRequest(Path(), timeout_ms=100, lock_timeout_ms=100)
SLOW = ChangeRequest(Path(), timeout_ms=5_000)
FLOWS = "  - {name: there, from: dc1, to: dc2, topics: {include: orders}}   # the way there\n"


def test_an_edited_text_is_read_in_place_of_its_file(tmp_path: Path) -> None:
    file = shop(tmp_path, FLOWS)
    after = with_states(file.read_text(), {"there": "paused"})
    assert after is not None

    for path in (file, tmp_path):
        edited = load_and_lint(TopologyRequest(path), edited={file: after})
        assert edited.topology.flows["there"].state == "paused"
        assert load_and_lint(TopologyRequest(path)).topology.flows["there"].state == "active"


def test_a_state_that_is_set_elsewhere_too_is_no_effect_of_its_edit(tmp_path: Path) -> None:
    file = shop(tmp_path, FLOWS)
    before = load_and_lint(TopologyRequest(file)).topology
    edits = TopologyEdits()
    edits.set_states([(before.flows["there"], "paused")])

    edits.check(load_and_lint(TopologyRequest(file), edited=edits.texts).topology)
    assert edits.flows == ["there"]
    with pytest.raises(Failure, match="the state of flow there is set elsewhere"):
        edits.check(before)


def test_the_hint_names_each_state_though_a_flow_has_it_already() -> None:
    with pytest.raises(Failure) as raised:
        TopologyEdits().set_states([(flow("there"), "active"), (flow("back"), "paused")])

    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.hint == "write state: active in there, state: paused in back, then run repl apply"


def test_the_states_of_many_flows_are_one_edit_of_their_file(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(12)]
    lines = [f"  - {{name: {name}, from: dc1, to: dc2, topics: {{include: {name}}}}}\n" for name in names]
    file = shop(tmp_path, "".join(lines))
    text = file.read_text()

    edits = states_edited(dict.fromkeys(names, "paused"), ChangeRequest(file))

    assert edits.texts == {file: text.replace(", from", ", state: paused, from")}
    assert edits.flows == names
    edits.check(load_and_lint(TopologyRequest(file), edited=edits.texts).topology)


def test_a_file_is_replaced_with_its_mode_and_link(tmp_path: Path) -> None:
    file, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    file.write_text("before")
    file.chmod(0o640)
    link.symlink_to(file.name)
    inode = file.stat().st_ino

    write_edited({link: b"before"}, {link: b"after"})

    assert (link.is_symlink(), file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (True, "after", 0o640)
    assert file.stat().st_ino != inode  # replaced whole: no reader ever sees half of it
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


def test_what_somebody_else_edited_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text("a")
    other.write_text("b, edited")

    with pytest.raises(Failure, match=r"b\.yaml was edited meanwhile, so nothing was changed"):
        write_edited({one: b"a", other: b"b"}, {one: b"new", other: b"new"})

    assert one.read_text() == "a"


def test_a_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    file.unlink()

    with pytest.raises(Failure, match=r"a\.yaml can't be written: No such file or directory"):
        write_edited({file: b"a"}, {file: b"b"})


def test_a_cluster_that_the_plan_does_not_change_is_not_read_under_the_leases() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, OldBroker(KAFKA_2_3, missing=[REGISTRY]) as broker:
        ports = {"dc1": silent.getsockname()[1], "dc2": broker.port}
        endpoints = {name: ClusterEndpoint(name, f"127.0.0.1:{port}") for name, port in ports.items()}
        session = ApplySession(
            plan=NOT_THERE, request=SLOW, endpoints=endpoints, tools=tools(), progress=print
        )

        assert set(run(session._observed()).clusters) == {"dc2"}

        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()


NOT_THERE = plan(topology(flow("there")), observed(cluster(live("a")), cluster(name="dc2")))


@cases(
    "made interaction refused",
    {
        "no step can begin: no cluster answers": (NOT_THERE, Interaction(approve_all), "does not answer"),
        "it is not approved": (NOT_THERE, UNATTENDED, "not approved, so nothing was changed"),
        "it takes no step": (plan(topology()), UNATTENDED, None),
    },
)
def test_what_is_edited_is_written_where_the_steps_can_begin(made, interaction, refused) -> None:
    written: list[bool] = []

    def carry_out() -> ApplyResult:
        return run(execute(made, QUICK, interaction, write=lambda: written.append(True)))

    if refused is None:
        assert carry_out().complete
    else:
        assert made.steps
        with pytest.raises(Failure, match=refused):
            carry_out()
    assert written == ([True] if refused is None else [])
