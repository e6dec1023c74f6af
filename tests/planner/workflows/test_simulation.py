"""The forecast of flows: from volumes, and from real topics."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from planner.cli.app import run
from planner.model.forecast import FlowForecast, TopicVolume, forecast
from planner.model.topology import Flow, Selection
from planner.render.plan.documents import html, markdown, simulation_remarks, simulation_text
from tests.planner.render.scenes import everything

FLOW = Flow("into-dc2", "dc1", "dc2", Selection(("orders",)))
HOUR_MS = 3_600_000
HELD = {"records": 1_000_000, "behind": 200_000, "bytes": 100_000_000, "retention_ms": 7 * 24 * HOUR_MS}
ORDERS = TopicVolume("orders", partitions=4, records_per_s=10_000.0, retention_bytes=None, **HELD)


def of(*topics: TopicVolume, rate: int = 5_000_000, outage_ms: int = HOUR_MS) -> FlowForecast:
    return forecast(FLOW, topics, rate, outage_ms)


def test_the_first_copy_takes_longer_the_more_is_written_meanwhile() -> None:
    found = of(ORDERS)
    assert (found.records_per_s, found.bytes_per_s) == (10_000, 1_000_000)
    assert (found.copy_records, found.copy_bytes) == (200_000, 20_000_000)
    assert found.copy_ms == 5_000  # 20 MB at 5 MB/s, of which 1 MB/s is what goes on being written
    assert (found.outage_records, found.outage_bytes) == (36_000_000, 3_600_000_000)
    assert found.after_outage_ms == 900_000
    assert found.bytes_a_day == 86_400_000_000
    assert (found.loss_ms, found.loss_topic, found.lost_records) == (7 * 24 * HOUR_MS, "orders", 0)


def test_the_rate_limit_of_the_flow_counts_where_it_is_lower() -> None:
    limited = forecast(structs.replace(FLOW, rate_limit=2_000_000), [ORDERS], 5_000_000, HOUR_MS)
    assert (limited.rate, limited.copy_ms) == (2_000_000, 20_000)
    assert (
        forecast(structs.replace(FLOW, rate_limit=9_000_000), [ORDERS], 5_000_000, HOUR_MS).rate == 5_000_000
    )


@pytest.mark.parametrize("rate", [1_000_000, 999_999])
def test_a_flow_that_copies_no_faster_than_its_source_is_written_never_catches_up(rate: int) -> None:
    found = of(ORDERS, rate=rate)
    assert found.keeps_up is False
    assert (found.copy_ms, found.after_outage_ms) == (None, None)
    assert any("never catches up" in one for one in simulation_remarks((found,)))


def test_the_first_topic_to_lose_records_is_named_and_all_that_is_lost_is_counted() -> None:
    short = replace(ORDERS, topic="clicks", retention_ms=HOUR_MS // 2, records_per_s=100.0)
    found = of(ORDERS, short)
    assert (found.loss_topic, found.loss_ms) == ("clicks", HOUR_MS // 2)
    assert found.lost_records == 180_000
    (remark,) = simulation_remarks((found,))
    assert "loses about 180,000 records" in remark
    assert "deletes records of clicks after 30 min" in remark


@pytest.mark.parametrize(
    ("topics", "loss_ms", "lost"),
    [
        # Four partitions of 25 MB at 1 MB/s.
        ([replace(ORDERS, retention_ms=None, retention_bytes=25_000_000)], 100_000, 10_000 * (3600 - 100)),
        ([replace(ORDERS, retention_ms=None)], None, 0),
        ([replace(ORDERS, records_per_s=0.0)], None, 0),
        ([], None, 0),
    ],
    ids=["retention by size", "never deleted", "never written", "no topic"],
)
def test_what_an_outage_loses(topics: list[TopicVolume], loss_ms: int | None, lost: int) -> None:
    found = of(*topics)
    assert (found.loss_ms, found.lost_records) == (loss_ms, lost)


def test_without_sizes_only_records_are_known() -> None:
    found = of(replace(ORDERS, bytes=None))
    assert (found.copy_records, found.outage_records) == (200_000, 36_000_000)
    assert (found.copy_bytes, found.copy_ms, found.bytes_a_day, found.keeps_up) == (None, None, None, None)
    shown = "\n".join(line.plain for line in simulation_text((found,), None))
    assert "never" not in shown.splitlines()[3].replace("7 d", "")


def test_the_table_stands_in_the_comment_and_on_the_page() -> None:
    unread = FlowForecast("out", "<dc3>", "dc1", 5_000_000, HOUR_MS, why="<dc3> does not answer")
    seen = (of(ORDERS), unread)
    comment, page = markdown(everything(), simulation=seen), html(everything(), seen)
    assert "| into-dc2 | 1 | 10,000/s (1.0 MB/s) | 200,000 (20.0 MB) | 5.0 s |" in comment
    assert "nothing is known of it, because" in comment
    assert "<td>into-dc2</td>" in page
    assert "&lt;dc3&gt; does not answer" in page
    assert "<dc3>" not in page
    assert "simulation" not in html(everything()).partition("</style>")[2]


def test_without_a_flow_there_is_no_table() -> None:
    heading = "Simulation: no flow of this plan runs"
    assert [line.plain for line in simulation_text((), None)] == [heading]
    comment = markdown(everything(), simulation=())
    assert heading in comment
    assert "| Flow |" not in comment


def test_a_simulation_is_of_the_flows_that_the_plan_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "topology.yaml"
    flows = [
        {"name": name, "from": "dc1", "to": there, "topics": {"include": ["orders"]}}
        for name, there in (("a", "dc2"), ("b", "dc3"))
    ]
    clusters = {name: {"bootstrap": "127.0.0.1:1"} for name in ("dc1", "dc2", "dc3")}
    file.write_text(json.dumps({"apiVersion": "repl/v1", "name": "t", "clusters": clusters, "flows": flows}))

    def forecast_flows(*options: str) -> list[str]:
        run(["plan", str(file), "--simulate", "--json", "--timeout", "1s", *options])
        return [flow["flow"] for flow in json.loads(capsys.readouterr().out)["simulation"]]

    assert forecast_flows() == ["a", "b"]
    assert forecast_flows("--target", "flow.a") == ["a"]
    assert forecast_flows("--target", "topic.dc1.orders") == []
