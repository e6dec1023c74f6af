import pytest

from runtime.contract.spec import naming


@pytest.mark.parametrize(
    ("name", "internal"),
    [("__repl.ledger", True), (naming.HEARTBEATS, True), ("__replica", False), ("orders", False)],
)
def test_internal_names_begin_with_one_prefix(name: str, internal: bool) -> None:
    assert naming.is_internal(name) is internal


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("orders", None),
        ("a.B_c-9", None),
        ("x" * 249, None),
        ("", "a topic's name cannot be empty"),
        (".", "a topic cannot be named '.'"),
        ("..", "a topic cannot be named '..'"),
        ("x" * 250, "a topic's name has at most 249 characters, 'xxxxxxxxxxxxxxxxxxxx'… has 250"),
        ("a b", "a topic's name holds only letters, digits, '.', '_' and '-', 'a b' holds ' '"),
        ("größe", "a topic's name holds only letters, digits, '.', '_' and '-', 'größe' holds 'ö'"),
    ],
)
def test_what_kafka_takes_as_a_name(name: str, why: str | None) -> None:
    assert naming.illegal_because(name) == why


def test_dots_and_underscores_share_a_metric() -> None:
    assert naming.metric_name("a.b_c") == naming.metric_name("a_b.c") == "a_b_c"
