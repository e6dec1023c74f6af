"""Quotas in the YAML: whom they limit, how much, and what is said of one that Kafka does not have."""

from pathlib import Path

import pytest

from planner.model.topology import Quota, QuotaEntity
from planner.model.topology.quotas import entity_of, number, number_text, quota_of
from tests.planner.config.given import loaded, mistakes

LIMIT = "producer_byte_rate: 1MB/s"


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


OF_USERS = "producer_byte_rate, consumer_byte_rate, request_percentage {} controller_mutation_rate"
WRONG = {
    f"cluster: dc9, user: a, {LIMIT}": 'there is no cluster "dc9" — did you mean "dc2"?',
    f"user: a, {LIMIT}": 'a quota without "cluster" — add cluster: [dc1, dc2]',
    f"cluster: dc1, {LIMIT}": "a quota that does not say whom it limits — add one of user, client_id or ip",
    "cluster: dc1, user: a": f"a quota without a limit — add {OF_USERS.format('or')}",
    "cluster: dc1, ip: 10.0.0.7": "a quota without a limit — add connection_creation_rate",
    f"cluster: dc1, ip: 10.0.0.7, {LIMIT}": (
        "producer_byte_rate limits no address — Kafka has connection_creation_rate for it"
    ),
    "cluster: dc1, user: a, connection_creation_rate: 1": (
        f"connection_creation_rate limits no user or client — Kafka has {OF_USERS.format('and')} for it"
    ),
    "cluster: dc1, user: a, ip: 10.0.0.7, connection_creation_rate: 1": (
        "a quota of an address together with a user or a client — make two: Kafka has no such pair"
    ),
    f'cluster: dc1, user: "User:a", {LIMIT}': (
        '"user" is "User:a", not a user\'s name, or <default> — write it without User:'
    ),
    "cluster: dc1, user: a, producer_byte_rate: 1048576": (
        '"producer_byte_rate" is "1048576": a rate is a size per second — write it as 50MB/s'
    ),
    'cluster: dc1, user: a, request_percentage: "50"': (
        '"request_percentage" is the text "50" — it takes a number: remove the quotes'
    ),
    "cluster: dc1, user: a, request_percentage: 0.0": (
        '"request_percentage" is "0.0" — it takes more than zero'
    ),
    "cluster: dc1, user: a, request_percentage: 50%": (
        '"request_percentage" is "50%" — it takes a number above 0 such as 50 or 12.5'
    ),
    f"cluster: dc1, user: a, {LIMIT}, producer_bytes: 1": (
        'unknown key "producer_bytes" in a quota — did you mean "producer_byte_rate"?'
    ),
}


@pytest.mark.parametrize("quota", WRONG)
def test_what_is_no_quota_is_said_in_its_line(quota: str, tmp_path: Path) -> None:
    (mistake,) = mistakes(tmp_path, f"quotas: [{{{quota}}}]\n")
    line, _, said = mistake.split(":", 2)
    assert (line, said.strip()) == ("1", WRONG[quota])


def test_a_quota_stands_once(tmp_path: Path) -> None:
    text = f"quotas:\n  - {{cluster: [dc1, dc2], user: a, {LIMIT}}}\n  - {{cluster: dc2, user: a, {LIMIT}}}\n"
    what = f"3:5: the quota of user a at dc2 stands in two places, first at {tmp_path}/t.yaml:7:5"
    assert mistakes(tmp_path, text) == [f"{what} — keep one, with the limits of both"]


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
    assert entity_of(entity.parts) == entity


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
