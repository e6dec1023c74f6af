"""PURE: which mirrors a drill tries to write, and where it looks for rules that were synced."""

import json
from pathlib import Path
from typing import Any

from planner.config import load
from planner.drill.replica import Replica
from planner.drill.rules import protected_routes, synced_routes


def replica(folder: Path, *flows: dict[str, Any]) -> Replica:
    body = {
        "apiVersion": "repl/v1",
        "name": "shop",
        "clusters": {one: {"bootstrap": f"{one}:9092"} for one in ("paris", "tokyo")},
        "flows": [{"name": f"{one['from']}-{at}", **one} for at, one in enumerate(flows)],
    }
    (folder / "topology.yaml").write_text(json.dumps(body))
    return Replica(load(folder), folder / "drill", print)


def flow(source: str, to: str, topic: str, **more: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "topics": {"include": [topic]}, **more}


def mirrors(routes: Any) -> list[tuple[str, str]]:
    return [(one.destination, one.mirror) for one in routes]


def test_only_what_flows_protect_or_sync_is_tried(tmp_path: Path) -> None:
    made = replica(
        tmp_path,
        flow("paris", "tokyo", "orders", protect="acl", rename="copy.{topic}"),
        flow("paris", "tokyo", "people", acls={"sync": True}),
        flow("paris", "tokyo", "payments"),
    )
    assert mirrors(protected_routes(made, made.routes)) == [("tokyo", "copy.orders")]
    assert mirrors(synced_routes(made, made.routes)) == [("tokyo", "people")]


def test_a_topic_that_clients_write_at_both_sides_is_not_tried(tmp_path: Path) -> None:
    made = replica(
        tmp_path,
        flow("paris", "tokyo", "orders", protect="acl"),
        flow("tokyo", "paris", "orders", protect="acl"),
        flow("tokyo", "paris", "payments", protect="acl"),
    )
    assert mirrors(protected_routes(made, made.routes)) == [("paris", "payments")]
