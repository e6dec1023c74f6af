"""The transform of a flow, as far as its text goes."""

from pathlib import Path
from typing import Literal

import pytest

from runtime.contract.client.stores import Setting
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.transform import FormatSpec
from tests.planner.config.given import loaded

FLOW = """\
flows:
  - name: f
    from: dc1
    to: dc2
    topics: {include: [orders]}
    transform: %s
"""


def test_a_registry_reaches_the_job_with_references_alone(tmp_path: Path) -> None:
    (tmp_path / "c.avsc").write_text("{}")
    registry = "{url: 'https://r:8081', client: {sasl.username: u, sasl.password: {env: PASSWORD}}}"
    text = (
        FLOW % f"{{value: {{format: avro, schema: {{file: c.avsc}}, registry: {registry}}}, drop: [value.a]}}"
    )
    made = loaded(tmp_path, text).flows["f"].transform
    assert made is not None
    client: dict[str, Setting] = {"sasl.username": "u", "sasl.password": {"env": "PASSWORD"}}
    assert made.value.registry == RegistrySpec(url="https://r:8081", client=client)


@pytest.mark.parametrize(
    ("form", "text"), [("avro", '{"type": "record"}'), ("json", "id BIGINT,\n  email STRING")]
)
def test_a_schema_may_be_a_file_beside_the_topology(
    tmp_path: Path, form: Literal["avro", "json"], text: str
) -> None:
    """Its text is part of the topology then: the job needs no file."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "customer").write_text(text + "\n")
    transform = f"{{value: {{format: {form}, schema: {{file: schemas/customer}}}}, drop: [value.email]}}"
    made = loaded(tmp_path, FLOW % transform).flows["f"].transform
    assert made is not None
    assert made.value == FormatSpec(format=form, schema=text)


def test_the_descriptors_of_protobuf_are_a_file_beside_the_topology(tmp_path: Path) -> None:
    """The job gets the name of the message, and the bytes of the file in base64."""
    (tmp_path / "c.desc").write_bytes(b"\n\xff\x00 ")
    form = "{format: protobuf, schema: {file: c.desc, message: shop.Customer}}"
    made = loaded(tmp_path, FLOW % f"{{value: {form}, key: {form}, drop: value.a}}").flows["f"].transform
    assert made is not None
    assert made.value == made.key == FormatSpec(format="protobuf", schema="shop.Customer Cv8AIA==")
