"""A cluster that takes in little slows what is copied to it, and stops nothing."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.lab.lab import Lab
from tests.labs import run_tool
from tests.runtime.slot.world import Side, copying

pytestmark = [pytest.mark.integration, pytest.mark.long]
BYTES_PER_S = 300_000
PARTITIONS = 8


def test_a_small_produce_quota_slows_a_flow_and_stops_nothing(
    lab: Lab, sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    """All of it in flight at once would take twice as long as brokers leave a transaction open."""
    client = fresh("client")
    config = ["--add-config", f"producer_byte_rate={BYTES_PER_S}"]
    entity = ["--entity-type", "clients", "--entity-name", client]
    run_tool(lab, "dc2", "kafka.admin.ConfigCommand", "--alter", *config, *entity)
    limited = replace(sides["dc2"], client={**sides["dc2"].client, "client.id": client})
    orders = copying({**sides, "dc2": limited}, fresh, PARTITIONS)
    value = os.urandom(10_000)
    rows = [{"value": value, "partition": number % PARTITIONS} for number in range(800)]
    orders.source.write(orders.topic, rows, batch_size=900_000, linger_ms=50)
    orders.copy_through()
    orders.assert_equal()
