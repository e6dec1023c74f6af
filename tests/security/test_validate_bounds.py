"""Hostile topologies: each input of at most 1 MB validates or fails within bounded time and memory.

Each runs in a process of its own with limits on its memory and processor time. The limits are wider than what
is expected (2 seconds, 200 MB), because other tests share the machine.
"""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.config.bounds import LONGEST_RESULT, MOST_FLOWS, TopologyBoundExceeded, nodes, size
from planner.config.expressions import FILTERS, Expressions, NotComputable

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2]
MOST_BYTES = 1_000_000
CPU_S = 10
MEMORY = 700 * 2**20  # of addresses; what is resident is far less
HEAD = "apiVersion: repl/v1\nname: t\nclusters:\n  dc1: {bootstrap: a:1}\n  dc2: {bootstrap: b:1}\n"
FLOW = "flows:\n  - name: f\n    from: dc1\n    to: dc2\n    topics: {include: "
INCLUDE = "flows:\n  - name: f\n    from: dc1\n    to: dc2\n    topics:\n      include:\n"


def filled(line: Callable[[int], str], most: int = 900_000) -> str:
    lines: list[str] = []
    length = 0
    while length < most:
        lines.append(line(len(lines)))
        length += len(lines[-1])
    return "".join(lines)


def flows(more: Callable[[int], str], most: int = 900_000) -> str:
    return "flows:\n" + filled(lambda n: f"  - {{name: f{n}, from: dc1, to: dc2, {more(n)}}}\n", most)


def expression(text: str, variables: str = "a: aaaaaaaaaa") -> str:
    return f"vars:\n  {variables}\n{FLOW}'{{{{ {text} }}}}'}}\n"


def listed(count: int, what: str = "x") -> str:
    return "[" + ",".join([what] * count) + "]"


ATTACKS: dict[str, tuple[str, str]] = {
    "replace, again and again": (expression("a" + '|replace("a", "aaaaaaaaaa")' * 8), "100,000 characters"),
    "a list in many flows": (
        f"vars:\n  l: {listed(4_000)}\n" + flows(lambda _: "topics: {include: '{{ l }}'}", 25_000),
        "too much comes out of variables here",
    ),
    "a text many times": (
        f"vars:\n  l: {'x' * 400_000}\n{FLOW}'{'{{ l }}' * 50_000}'}}\n",
        "it comes to more than 100,000 characters",
    ),
    "a text in many places": (
        f"vars:\n  l: {'x' * 900}\n" + INCLUDE + filled(lambda _: f"      - '{'{{ l }}' * 110}'\n"),
        "10,000,000",
    ),
    "concatenation": (expression(" ~ ".join("l" * 20), f"l: {'x' * 90_000}"), "100,000 characters"),
    "join": (expression("l|join(d)", f"d: {'x' * 90_000}\n  l: {listed(30_000)}"), "100,000 characters"),
    "a sum of lists": (
        expression("l|sum(start=[])", f"l: {listed(9_000, '[x]')}"),
        "sum is for numbers only",
    ),
    "round": (expression('9|round(99999999, "ceil")'), "round keeps at most 20 digits"),
    "a huge variable": (
        expression("l|length", f"l: {listed(200_000)}"),
        'variable "l" holds more than 100,000',
    ),
    "many expressions": (
        "vars: {a: 1}\n" + INCLUDE + filled(lambda n: f"      - 'x{{{{a+{n}}}}}'\n"),
        "all different expressions together",
    ),
    "comparisons": (
        f"vars:\n  l: {listed(40_000)}\n"
        + flows(lambda n: f"topics: {{include: '{{{{ {n} if {' and '.join(['l==l'] * 200)} else 0 }}}}'}}"),
        "all expressions together read and make",
    ),
    "(a|a)+b": (
        f"topics: [{{name: {'a' * 240}, cluster: dc1}}]\n{FLOW}'(a|a)+b'}}\n",
        "Valid",
    ),
    "large regexes": (INCLUDE + filled(lambda n: f"      - '(\\w{{30}}){{{n % 30 + 1}}}x{n}'\n"), "too many"),
    "regexes that turn out too large": (
        INCLUDE + filled(lambda n: f"      - '([^a]{{1000}}){{1}}([^{n}]{{1000}}){{1}}{'x' * 20}'\n"),
        "is",
    ),
    "many regexes": (INCLUDE + filled(lambda n: f"      - 'x{n}.*'\n"), "250,000 instructions"),
    "more concatenation": (expression(" ~ ".join("l" * 390), f"l: {'x' * 90_000}"), "5,000,000"),
    "names and regexes": (
        "topics:\n"
        + filled(lambda n: f"  - {{name: t{n}, cluster: dc1}}\n", 300_000)
        + INCLUDE
        + filled(lambda n: f"      - 'x{n}.*'\n", 20_000),
        "pairs to compare",
    ),
    "a rename without end": (
        f"{FLOW}x}}\n    rename: {{match: '{'(a)-' * 100_000}', to: '{'b' * 100_000}'}}\n",
        "is longer than 1,000 characters",
    ),
    "many flows": (flows(lambda _: "topics: {include: 'a.*'}"), f"more than {MOST_FLOWS:,} flows"),
    "unknown keys": (filled(lambda n: f"clustersx{n}: 1\n"), "mistakes"),
    "unknown variables": (
        "vars:\n"
        + filled(lambda n: f"  variable_number_{n}: 1\n", 400_000)
        + "topics:\n"
        + filled(lambda n: f"  - {{name: '{{{{variable_numbre_{n}}}}}', cluster: dc1}}\n", 400_000),
        "",
    ),
    "a huge integer": (f"topics: [{{name: x, cluster: dc1, partitions: {'9' * 900_000}}}]\n", "partitions"),
    "a huge duration": (f"{FLOW}x}}\n    rpo: {'9' * 900_000}s\n", "rpo"),
    "a long word": (f"{FLOW}x}}\n    state: {'a' * 900_000}\n", "state"),
    "offsets": (
        f"{FLOW}x}}\n    start: {{offsets: {{a: {{{','.join(f'{n}: 1' for n in range(90_000))}}}}}}}\n",
        "Valid",
    ),
    "spaces in an expression": (f"{FLOW}'{('{{' + ' ' * 100) * 8_000}'}}\n", "2,000 characters"),
}


def validated(file: Path) -> tuple[int, str]:
    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    done = subprocess.run(
        [sys.executable, "-m", "planner", "validate", str(file)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limits,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_it_ends_within_time_and_memory(name: str, tmp_path: Path):
    text, expected = ATTACKS[name]
    file = tmp_path / "t.yaml"
    file.write_text(HEAD + text)
    assert file.stat().st_size <= MOST_BYTES
    code, told = validated(file)
    assert code in (0, 1), f"it was killed or crashed: {code} {told[-300:]}"
    assert "Traceback" not in told
    assert expected in told
    assert len(told) < 2_000_000


def test_a_large_honest_topology_is_valid(tmp_path: Path):
    """10,000 topics, 20 flows with regexes, names out of variables and expressions."""
    topics = "".join(f"  - {{name: '{{{{ region }}}}.t{n}', cluster: dc1}}\n" for n in range(10_000))
    more = "".join(
        f"  - {{name: f{n}, from: dc1, to: dc2, topics: {{include: '{{{{ region }}}}\\.a{n}-.*'}}}}\n"
        for n in range(20)
    )
    file = tmp_path / "t.yaml"
    file.write_text(f"{HEAD}vars: {{region: eu}}\ntopics:\n{topics}flows:\n{more}")
    code, told = validated(file)
    assert code == 0, told[-500:]


VALUES = st.recursive(
    st.text("ab", max_size=50) | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=30),
    max_leaves=200,
)
PARTS = st.sampled_from([*FILTERS, 'replace("a", "aaaaaaaaaa")', "join(v)", "join(w)"])


@settings(deadline=1_000)
@given(VALUES, VALUES, st.lists(PARTS, max_size=20), st.sampled_from(["~", "+", "*", "**", "=="]))
def test_no_chain_of_filters_makes_more_than_is_allowed(
    v: object, w: object, chain: list[str], operator: str
):
    expressions = Expressions({"v": v, "w": w})
    text = "v" + "".join(f"|{one}" for one in chain)
    try:
        result = expressions.value(f"({text}) {operator} ({text})")
    except (NotComputable, TopologyBoundExceeded):
        return
    assert size(result) <= LONGEST_RESULT
    assert nodes(result) <= LONGEST_RESULT
