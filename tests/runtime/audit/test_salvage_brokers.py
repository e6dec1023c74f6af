"""`repl salvage` on real brokers: what a flow had not copied when it ended, to the record."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.ledger.positions import FlowNotEnded
from tests.commands import repl
from tests.records import open_transaction
from tests.runtime.audit.ended import end_flow, leave
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, Row, Side, assigned, copy_through, copying, flow_spec
from tests.topologies import declared, of_flows

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def salvage(flow: str, file: Path, *options: str) -> dict[str, Any]:
    done = repl("salvage", flow, "--path", str(file), "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(content: Mapping[str, str] | None) -> bytes | None:
    return base64.b64decode(content["base64"]) if content is not None else None


def row(line: str) -> Row:
    """A line of an export, as a consumer would have seen the record."""
    one = json.loads(line)
    headers = tuple((header["name"], of(header["value"])) for header in one["headers"])
    return Row(one["offset"], one["timestamp_ms"], of(one["key"]), of(one["value"]), headers)


def test_what_was_written_after_the_copying_ended(
    sides: Mapping[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """Committed records of every kind, none that was copied or aborted; also where the flow never came."""
    begun, late = copying(sides, fresh, 2), fresh("late")
    flow, orders, here = begun.flow.name, begun.topic, begun.source
    mixed(here, orders, 2, seed=11, count=200)
    begun.copy_through()
    copied = [len(rows) for rows in here.read(orders, 2)]
    file = of_flows(sides, tmp_path, declared(flow, orders, late))
    assert sum(one["records"] for one in salvage(flow, file)["partitions"]) == 0

    mixed(here, orders, 2, seed=12, count=300)
    here.write(orders, [{"key": b"\xff\xfe", "value": None, "partition": 1, "headers": [("h", b"\x80")]}])
    here.create(late)
    here.write(late, [{"value": "späť".encode()}] * 3)
    left = [rows[copied[number] :] for number, rows in enumerate(here.read(orders, 2))]

    out = tmp_path / "left.jsonl"
    seen = salvage(flow, file, "--export", str(out))
    counts = {(one["topic"], one["partition"]): one["records"] for one in seen["partitions"]}
    assert counts == {(orders, 0): len(left[0]), (orders, 1): len(left[1]), (late, 0): 3}
    assert [one["begun"] for one in seen["partitions"] if one["topic"] == late] == [False]
    lines = out.read_text().splitlines()
    assert len(lines) == seen["records"] == len(left[0]) + len(left[1]) + 3
    for number in range(2):
        exported = [row(one) for one in lines if _place(one) == (orders, number)]
        assert exported == left[number]
        assert [one.offset for one in exported] == [one.offset for one in left[number]]
    assert [json.loads(one)["value"]["text"] for one in lines if _place(one) == (late, 0)] == ["späť"] * 3

    again = repl("salvage", flow, "--path", str(file), "--export", str(out))
    assert (again.returncode, out.read_text().splitlines()) == (1, lines)
    assert "is there already" in again.stderr
    assert [each.name for each in tmp_path.iterdir() if "left" in each.name] == [out.name]

    shown = repl("salvage", flow, "--path", str(file)).stdout
    assert f"{seen['records']:,} records of dc1 never reached dc2" in shown
    assert "the flow never copied it" in shown
    assert "is active: what is listed may only be on its way" in shown


def test_what_came_home_is_not_counted_and_what_was_orphaned_is(
    sides: Mapping[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """After a failback: the old primary's last records were given up, new ones came from the other side."""
    forward, back = copying(sides, fresh, provenance="batch"), fresh("back")
    flow, orders, here = forward.flow.name, forward.topic, forward.source
    here.write(orders, [{"value": b"copied"}] * 5)
    forward.copy_through()
    here.write(orders, [{"value": b"orphan %d" % number} for number in range(4)])
    (_, end) = here.ends(orders)[0]
    with pytest.raises(FlowNotEnded, match="is active"):
        leave(sides, flow)
    end_flow(forward.driver, flow)
    assert leave(sides, flow) == [(5, end)]
    assert leave(sides, flow) == [(5, end)]  # nothing more is left
    forward.destination.write(orders, [{"value": b"new"}] * 3)
    backward = Driver(sides, "dc1", job=fresh("job"))
    copy_through(
        backward, flow_spec(back, "dc2", "dc1", provenance="batch", shared=True), assigned(back, orders)
    )
    reverse = declared(back, orders, source="dc2", destination="dc1")
    file = of_flows(sides, tmp_path, declared(flow, orders), reverse)
    (one,) = salvage(flow, file)["partitions"]
    assert [record["value"]["text"] for record in one["first"]] == [f"orphan {at}" for at in range(4)]
    assert one["records"] == 4
    assert one["kept_back"] >= 3
    assert [why for _, _, why in one["stretches"]] == ["orphaned", "not copied"]


def test_what_retention_took_before_it_was_copied_is_said(
    sides: Mapping[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    orders = copying(sides, fresh)
    orders.source.write(orders.topic, [{"value": b"copied"}] * 5)
    orders.copy_through()
    orders.source.write(orders.topic, [{"value": b"left"}] * 10)
    orders.source.forget(orders.topic, 9)
    file = of_flows(sides, tmp_path, declared(orders.flow.name, orders.topic))
    (one,) = salvage(orders.flow.name, file)["partitions"]
    assert (one["records"], one["lost"], one["stretches"]) == (6, 4, [[9, 15, "not copied"]])


def test_what_follows_an_open_transaction_is_named(
    sides: Mapping[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """Its committed records can't be read yet: the report does not say that nothing is missing."""
    orders = copying(sides, fresh)
    here, topic, name = orders.source, orders.topic, orders.flow.name
    here.write(topic, [{"value": b"copied"}] * 5)
    orders.copy_through()
    producer = open_transaction(here.client, topic, fresh("open"), 0)
    here.write(topic, [{"value": b"behind it"}] * 2)
    file = of_flows(sides, tmp_path, declared(name, topic))
    seen = repl("salvage", name, "--path", str(file))
    assert seen.returncode == 1, seen.stderr
    assert "a transaction is open at offset 5" in seen.stdout
    assert "not everything could be read" in seen.stdout
    producer.abort_transaction(30)
    (one,) = salvage(name, file)["partitions"]
    assert (one["records"], one["open_from"]) == (2, None)


def _place(line: str) -> tuple[str, int]:
    one = json.loads(line)
    return one["topic"], one["partition"]
