"""Quotas in the YAML: whom they limit, and how much."""

from pathlib import Path

import pytest

from planner.model.topology import Quota, QuotaEntity
from planner.model.topology.quotas import entity_of, number, number_text, quota_of
from tests.planner.config.given import loaded


def test_a_quota_is_made_at_each_cluster_with_its_limits_in_kafkas_units(tmp_path: Path) -> None:
    text = """
    quotas:
      - {cluster: [dc2, dc1], user: app, client_id: <default>, producer_byte_rate: 1MiB/s,
         request_percentage: 12.50}
    """
    one, other = loaded(tmp_path, text).quotas
    assert (one.cluster, other.cluster) == ("dc1", "dc2")
    assert one.entity == other.entity == QuotaEntity("app", "<default>")
    assert one.values == {"producer_byte_rate": 1_048_576, "request_percentage": 12.5}


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        (QuotaEntity("app"), "user/app"),
        (QuotaEntity("app", "loader"), "user/app/client-id/loader"),
        (QuotaEntity("app/client-id/loader"), "user/app%2Fclient-id%2Floader"),
        (QuotaEntity("a%2F"), "user/a%252F"),
        (QuotaEntity("CN=repl, O=shop", "<default>"), "user/CN=repl, O=shop/client-id/<default>"),
        (QuotaEntity(ip="10.0.0.7"), "ip/10.0.0.7"),
    ],
)
def test_two_entities_never_have_one_address(entity: QuotaEntity, name: str) -> None:
    assert entity.name == name
    assert entity_of(entity.parts) == QuotaEntity.named(name) == entity


def test_an_entity_that_the_language_does_not_have_is_none() -> None:
    assert entity_of({}) is None
    assert entity_of({"user": "a", "group": "b"}) is None


@pytest.mark.parametrize(
    ("value", "text"), [(50.0, "50"), (12.5, "12.5"), (1e-05, "0.00001"), (2.0**62, str(2**62))]
)
def test_a_whole_number_has_no_fraction(value: float, text: str) -> None:
    assert number_text(number(value)) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is no number"):
        number(value)


def test_a_limit_that_the_language_does_not_have_is_left_out() -> None:
    entity = QuotaEntity("app")
    assert quota_of("dc1", entity, {"request_percentage": 5, "vendor_rate": 1}) == Quota(
        "dc1", "app", request_percentage=5
    )
