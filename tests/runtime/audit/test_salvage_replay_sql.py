"""`repl salvage --replay` of a flow with a transform on real brokers and Spark: once, and as it copies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.commands import repl
from tests.runtime.audit.ended import end_flow
from tests.runtime.audit.test_salvage_replay_brokers import place, replayed
from tests.runtime.slot.world import Side, copying
from tests.topologies import declared, of_flows

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
TRANSFORM = {
    "value": {"format": "json", "schema": "id BIGINT, email STRING"},
    "where": "value.id % 3 <> 0",
    "on_filtered": "tombstone",
    "set": {"value.email": "upper(value.email)"},
    "on_bad_record": "quarantine",
}
PADDING = "x" * 9_000  # so that a partition takes several transactions


def value(at: int) -> bytes | None:
    if at == 50:
        return None
    return b'{"id": ' if at % 100 == 7 else b'{"id": %d, "email": "a@b", "p": "%s"}' % (at, PADDING.encode())


def test_what_was_left_travels_as_the_transform_says(
    sides: Mapping[str, Side], fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """Killed in the middle and run again. What is bad goes to the quarantine, once, and verify agrees."""
    begun = copying(sides, fresh, 2)
    flow, orders, here, there = begun.flow.name, begun.topic, begun.source, begun.destination
    here.write(orders, [{"key": b"k", "value": None, "partition": at} for at in range(2)])
    begun.copy_through()
    rows = [
        {"value": value(at), "partition": at % 2, "key": b"k" if at % 8 < 4 else None} for at in range(1_400)
    ]
    here.write(orders, rows)
    left = [rows[1:] for rows in here.read(orders, 2)]
    end_flow(begun.driver, flow)
    file = of_flows(sides, tmp_path, declared(flow, orders, state="failed_over", transform=TRANSFORM))
    missing = f"there is no topic {orders}.quarantine, which takes bad records"
    assert missing in replayed(file, flow, code=1)["said"]
    there.create(f"{orders}.quarantine", 1)

    assert "run it again" in replayed(file, flow, code=1, REPL_FAILPOINT="after_ledger:2")["said"]
    assert replayed(file, flow)["records"] > 0
    bad = []
    for number, arrived in enumerate(there.read(orders, 2)):
        expected: list[tuple[bytes | None, tuple[str, int, int]]] = []
        for row in left[number]:
            if row.value is None:
                expected.append((None, (orders, number, row.offset)))
            elif row.value == b'{"id": ':
                bad.append(row.value)
            elif json.loads(row.value)["id"] % 3:
                expected.append((row.value.replace(b"a@b", b"A@B"), (orders, number, row.offset)))
            elif row.key is not None:  # a filtered record is replayed as a tombstone
                expected.append((None, (orders, number, row.offset)))
        assert [(row.value, place(row)) for row in arrived[1:]] == expected
        assert sum(row.value is None for row in arrived) > 100
    (quarantined,) = there.read(f"{orders}.quarantine")
    assert [row.value for row in quarantined] == bad
    assert len(bad) == 14

    done = repl("verify", flow, "--path", str(file), "--json", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = repl("salvage", flow, "--path", str(file), "--replay")
    assert "Nothing is left to replay" in shown.stdout
