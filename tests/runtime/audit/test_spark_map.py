"""The snippet of docs/internals/ledger.md, run as it stands there."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import MappedOffset
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import SelectionSpec
from runtime.lab.lab import Lab
from tests.offset_maps import read_map
from tests.runtime.conftest import sides_of
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, assigned, copy_through, flow_spec

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
DOCS = Path("docs/internals/ledger.md")


def test_the_offset_map_is_a_data_frame(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> None:
    """Through markers, aborted data and holes it tells what the map itself tells."""
    sides, topic = sides_of(lab), fresh("orders")
    flow = flow_spec(fresh("flow"), "dc1", "dc2", rename=Template(text="copy.{topic}"))
    flow = replace(flow, topics=SelectionSpec(include=(topic,)))
    sides["dc1"].create(topic)
    sides["dc2"].create(f"copy.{topic}")
    mixed(sides["dc1"], topic)
    driver = Driver(sides, "dc2", fresh("job"))
    copy_through(driver, flow, assigned(flow.name, topic, 1, destination_topic=f"copy.{topic}"))
    offset = sides["dc1"].read(topic)[0][150].offset

    (snippet,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    changes = {
        "127.0.0.1:29092": sides["dc2"].bootstrap,
        "dc1-to-dc2": flow.name,
        "'orders'": f"'{topic}'",
        "250": str(offset),
    }
    for there, here in changes.items():
        assert there in snippet
        snippet = snippet.replace(there, here)
    (tmp_path / "snippet.py").write_text(snippet, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, str(tmp_path / "snippet.py")],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-3000:]

    async def mapped() -> object:
        async with await sides["dc2"].open() as cluster:
            return (await read_map(cluster, flow.name))[PartitionKey(flow.name, topic, 0)].translate(offset)

    answer = asyncio.run(mapped())
    assert isinstance(answer, MappedOffset)
    assert answer.exact
    (row,) = re.findall(r"^\|(copy\..*?) *\|(\d+) *\|(\d+) *\|$", told.stdout, re.MULTILINE)
    assert row == (f"copy.{topic}", "0", str(answer.offset))
