"""`repl promote FLOW --topics RE`: which topics it is about, and where nothing comes of it."""

from pathlib import Path

import pytest

from planner.model.diagnostic import ExitCode, Failure
from planner.workflows.flows.states import chosen_of
from runtime.contract.views.status_view import FlowStatusView, TopicStatusView
from tests.planner.cli.shop import refused, shop

FLOWS = """\
  - {name: there, from: dc1, to: dc2, topics: {include: ["pay.*"]}}   # the way there
  - {name: rests, from: dc1, to: dc2, topics: {include: ["old.*"]}, state: paused}
  - {name: gone, from: dc1, to: dc2, topics: {include: ["gone.*"]}, state: failed_over}
"""


def topic(name: str, state: str = "caught_up") -> TopicStatusView:
    return TopicStatusView(
        topic=name,
        destination_topic=name,
        state=state,
        lag_records=0,
        lag_ms=0,
        records_per_s=None,
        bytes_per_s=None,
        partitions=[],
    )


def seen(*topics: TopicStatusView) -> FlowStatusView:
    values: dict[str, object] = dict.fromkeys(FlowStatusView.__struct_fields__)
    return FlowStatusView(**{**values, "name": "there", "topics": list(topics)})  # type: ignore[arg-type]


FLOW = seen(topic("pay.eu"), topic("pay.us"), topic("orders"), topic("old", "promoted"))


def test_whole_names_are_matched() -> None:
    assert [one.topic for one in chosen_of(FLOW, r"pay\..*")] == ["pay.eu", "pay.us"]
    assert [one.topic for one in chosen_of(FLOW, "orders|old")] == ["orders"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (".*", "promote all of it: repl promote there"),
        ("(pay.*)|orders", "promote all of it: repl promote there"),
        ("pay.e", "matches no topic of flow.there — did you mean pay.eu?"),
        ("zzz", "matches no topic of flow.there — it copies orders, pay.eu, pay.us"),
        ("old", "old of flow.there was promoted before"),
    ],
)
def test_nothing_or_everything_is_no_choice(pattern: str, said: str) -> None:
    with pytest.raises(Failure) as failure:
        chosen_of(FLOW, pattern)

    assert said in str(failure.value)


@pytest.mark.parametrize(
    ("flow", "pattern", "code", "said"),
    [
        ("ther", "pay", ExitCode.ERROR, "there is no flow ther in this topology — did you mean there?"),
        ("rests", "old", ExitCode.REFUSED, "repl resume rests first"),
        ("gone", "gone", ExitCode.REFUSED, "flow.gone is failed_over and can't be promoted by topics"),
        ("there", "pay(", ExitCode.ERROR, "no regular expression"),
        ("there", "pay", ExitCode.ERROR, "nothing listens there"),
    ],
)
def test_nothing_came_of_it(
    tmp_path: Path, flow: str, pattern: str, code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["promote", flow, "--topics", pattern, "--timeout", "1s"]
    refused(shop(tmp_path, FLOWS), code, said, capsys, *arguments)
