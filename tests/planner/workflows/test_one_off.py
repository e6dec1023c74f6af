"""Commands let Spark evaluate transforms; here a driver that fails stands in for Spark."""

from pathlib import Path

import pytest

from planner.model.diagnostic import Failure
from planner.workflows import TopologyRequest, validate
from tests.fakes.spark import FakeSpark

MASKING = """
apiVersion: repl/v1
name: masking
clusters: {dc1: {bootstrap: "dc1:9092"}, dc2: {bootstrap: "dc2:9092"}}
flows:
  - name: mask
    from: dc1
    to: dc2
    topics: {include: x}
    transform: {value: {format: text}, where: "value = 'a'"}
"""


def test_where_spark_fails_the_flow_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, topology = FakeSpark(tmp_path), tmp_path / "repl.yaml"
    spark.drivers("end 3 0")
    topology.write_text(MASKING)
    monkeypatch.setenv("SPARK_HOME", str(spark.home))
    with pytest.raises(Failure) as caught:
        validate(TopologyRequest(topology))
    (problem,) = caught.value.diagnostics
    why = "the Spark application ended with 3"
    assert problem.summary == f"the transform of flow.mask was not checked: {why}"
