"""Names of topics: which are legal, and that a rename rule has an inverse or is refused with the reason."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runtime.contract.spec import naming
from runtime.contract.spec.naming import illegal_because
from runtime.contract.spec.rename import SAME_NAME, Match, Rename, Table, Template, backward, forward, problem

TABLE = Table({"orders": "orders.copy", "left": "right", "right": "left"})


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
def test_names_that_kafka_takes(name: str, why: str | None) -> None:
    assert illegal_because(name) == why


def test_internal_names_begin_with_one_prefix_and_dots_and_underscores_share_a_metric() -> None:
    names = ("__repl.ledger", naming.HEARTBEATS, "__replica", "orders")
    assert [naming.is_internal(name) for name in names] == [True, True, False, False]
    assert naming.metric_name("a.b_c") == naming.metric_name("a_b.c") == "a_b_c"


def test_an_id_is_kafkas_or_made_of_a_name_or_missing() -> None:
    ids = (b"k" * 16, naming.name_id("orders"), naming.NO_TOPIC_ID)
    assert [naming.is_from_kafka(topic_id) for topic_id in ids] == [True, False, False]
    others = [(known, found) for known in (b"o" * 16, *ids) for found in ids]
    assert [pair for pair in others if naming.is_other_topic(*pair)] == [(b"o" * 16, b"k" * 16)]


TO_B = Match(r"a-(.*)", r"b-\1")
PREFIX, SUFFIX = Template("{source}.{topic}"), Template("{topic}.replica")


@pytest.mark.parametrize(
    ("rule", "topic", "name"),
    [
        (SAME_NAME, "orders", "orders"),
        (PREFIX, "orders", "dc1.orders"),
        (SUFFIX, "orders", "orders.replica"),
        (Template("{source}-{topic}.of.{source}"), "orders", "dc1-orders.of.dc1"),
        (TO_B, "a-x", "b-x"),
        (TO_B, "c-x", "c-x"),
        (Match(r"^a-(.*)$", r"b-\g<1>"), "a-x", "b-x"),
        (Match(r"(?P<team>[a-z]+)\.(.*)", r"\2_of_\g<team>"), "pay.eu.cards", "eu.cards_of_pay"),
        (Match(r"(eu|us)\.([^.-]+)\.(.*)", r"\3.\1-\2"), "eu.pay.x.y", "x.y.eu-pay"),
        (Match(r"orders", r"orders.copy"), "orders", "orders.copy"),
        (Match(r"x\.(a\)[)]+)", r"\1"), "x.a", "x.a"),
        (TABLE, "orders", "orders.copy"),
        (TABLE, "left", "right"),
        (TABLE, "other", "other"),
        # Names that the rule does not make.
        (PREFIX, None, "orders"),
        (PREFIX, None, "dc1."),
        (PREFIX, None, "dc2.orders"),
        (SUFFIX, None, ".replica"),
        (Template("aba{topic}ba"), None, "ababa"),
        (TO_B, None, "a-x"),
        (Match(r"(.*)-([a-z]+)", r"\2.\1"), None, "UP-x"),
        (TABLE, None, "orders"),
    ],
)
def test_a_rename_and_its_inverse(rule: Rename, topic: str | None, name: str) -> None:
    assert problem(rule) is None
    assert backward(rule, name, "dc1") == topic
    assert topic is None or forward(rule, topic, "dc1") == name


def test_a_renamed_topic_comes_before_one_that_keeps_its_name() -> None:
    assert forward(TO_B, "b-x", "dc1") == "b-x"
    assert backward(TO_B, "b-x", "dc1") == "a-x"
    assert backward(Match(r"(.*)x", r"\1"), "o" * 249, "dc1") == "o" * 249  # no topic has 250 characters


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Template("replica"), "{topic} must stand in a rename exactly once, it is not there"),
        (Template("{topic}{topic}"), "{topic} must stand in a rename exactly once, it is there 2 times"),
        (Template("{name}.{topic}"), "{name} is unknown: a rename knows {topic} and {source}"),
        (Template("a b{topic}"), "a topic's name cannot hold ' ', which stands in 'a b{topic}'"),
        (Template("{{topic}"), "a topic's name cannot hold '{', which stands in '{{topic}'"),
        (
            Table({"a": "x", "b": "x"}),
            "a and b are both renamed to x: there would be no way back",
        ),
        (
            Table({"a": "x/y"}),
            "a topic's name holds only letters, digits, '.', '_' and '-', 'x/y' holds '/'",
        ),
        (Match(r"a-(.*", r"\1"), r"match: 'a-(.*' lacks a ): put a backslash before a sign meant as itself"),
        (
            Match(r"a.(.*)", r"\1"),
            (
                r"match: '.(.*)' of 'a.(.*)' stands outside a group, so it could not be put back:"
                r" write ( ) round what varies, and \. for a dot"
            ),
        ),
        (Match(r"a-(.*)", r"b-$1"), r"to: write \1 where 'b-$1' has $1"),
        (Match(r"a-(.*)", r"b \1"), r"to: a topic's name cannot hold ' ', which stands in 'b \\1'"),
        (Match(r"a-(.*)", r"b"), r"to: leaves out group 1 of 'a-(.*)': two names would become one"),
        (Match(r"a-(.*)", r"\1.\1"), r"to: '\\1.\\1' has group 1 twice: write it once"),
        (Match(r"a-(.*)", r"\2"), r"to: there is no group 2 in 'a-(.*)', it has 1"),
        (Match(r"a-(.*)", r"\g<x>"), r"to: there is no group x in 'a-(.*)', it has 1"),
        (
            Match(r"(?:a|b)-(.*)", r"\1"),
            r"match: '(?:a|b)' of '(?:a|b)-(.*)' is no plain group: write ( ) round what varies",
        ),
        (
            Match(r"((a)|b)", r"\1"),
            (
                r"match: '((a)|b)' of '((a)|b)' holds a group or a condition of its own:"
                r" only (?: ) may stand inside"
            ),
        ),
        (
            Match(r"(.*)-(.*)", r"\1\2"),
            (
                r"to: where group 1 ends and group 2 begins cannot be told:"
                r" put text between them that one of them cannot hold, as in ([a-z]+)\.(.*)"
            ),
        ),
    ],
)
def test_no_way_back_is_refused_with_the_reason(rule: Rename, why: str) -> None:
    assert problem(rule) == why


@pytest.mark.parametrize(
    ("pattern", "to", "told_apart"),
    [
        (r"(.*)-(.*)", r"\1-\2", False),
        (r"([^-]*)-(.*)", r"\1-\2", True),
        (r"([^-]*)-(.*)", r"\2-\1", True),
        (r"((?:eu|us){1,2})-(.*)", r"\1.\2", True),
        (r"(\w+?)-(.*)", r"\1_\2", False),
        (r"(\w+?)-(.*)", r"\1.\2", True),
        (r"(\.)(.*)", r"\1\2", False),
        (r"(\t*)-(.*)", r"\1-\2", False),  # not looked into, so taken as open
        (r"(a*)(.*)", r"\2.\1", True),
        (r"([a-c]+)-([d-f]+)-(.*)", r"\1.\3.\2", True),
    ],
)
def test_one_open_end_at_most(pattern: str, to: str, told_apart: bool) -> None:
    assert (problem(Match(pattern, to)) is None) is told_apart


NAMES = st.text(alphabet="ab-._9", min_size=1, max_size=12).filter(lambda name: not illegal_because(name))
BODIES = st.sampled_from([r".*", r"[a-z]+", r"[^.]*", r"\d*", r"(?:a|b)+", r"\w*?", r"a|b-b", r"[^-]+"])
LITERALS = st.sampled_from(["", "-", ".", "a", "_9"])


@st.composite
def match_rules(draw: st.DrawFn) -> Match:
    bodies = draw(st.lists(BODIES, max_size=3))
    order = draw(st.permutations(range(1, len(bodies) + 1)))
    pattern = draw(LITERALS).replace(".", r"\.")
    for body in bodies:
        pattern += f"({body})" + draw(LITERALS).replace(".", r"\.")
    to = draw(LITERALS) + "".join(f"\\{number}{draw(LITERALS)}" for number in order)
    return Match(pattern, to)


RULES = st.one_of(
    match_rules(),
    st.builds(
        lambda before, after: Template(f"{before}{{topic}}{after}"),
        st.sampled_from(["", "{source}.", "x", "{source}{source}"]),
        st.sampled_from(["", ".replica", "-{source}"]),
    ),
    st.builds(lambda names: Table(names), st.dictionaries(NAMES, NAMES, max_size=4)),
)


@given(RULES, NAMES)
def test_every_rule_without_a_problem_has_an_inverse(rule: Rename, topic: str) -> None:
    assume(problem(rule) is None)
    name, made_from = forward(rule, topic, "dc1"), backward(rule, topic, "dc1")
    home = backward(rule, name, "dc1")
    assert home is not None
    # Only where a second topic has the same forward name may another one come back.
    assert home == topic or forward(rule, home, "dc1") == name == topic
    assert made_from is None or forward(rule, made_from, "dc1") == topic
