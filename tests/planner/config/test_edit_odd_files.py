"""An edit changes its own bytes alone, however oddly a file is written. See docs/internals/yaml-edits.md."""

from pathlib import Path

import pytest
from msgspec import structs

from planner.config import load
from planner.config.edit import with_promoted, with_reverse_flow, with_states
from planner.config.files import in_form_of, text_to_edit
from planner.model.topology import Flow, Topology

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "plans" / "examples").glob("*.yaml"))
HEAD = """\
apiVersion: repl/v1
name: t
clusters:
  dc1: {bootstrap: "a:1"}
  dc2: {bootstrap: "b:1"}
"""
FLOW = """\
  - name: there
    from: dc1
    to: dc2
    topics: {include: orders}
"""
USUAL = f"{HEAD}flows:\n{FLOW}"
COMMENTS = """\
flows:   # here
  # before
  - name: there  # the name
    from: dc1   # a
    to: dc2
    # between
    topics: {include: orders}  # behind
# the end
"""
WIDE = """\
flows:
    -   name: there
        from: dc1
        to: dc2
        topics:
            include:
            - orders
"""
FOLDED = """\
vars:
  a: >-
    one
    two
  b: |+
    three

"""
LONG = f"    topics: {{include: [{', '.join(f'topic-number-{at}' for at in range(40))}]}}\n"
JSON = """\
{"apiVersion": "repl/v1", "name": "t",
 "clusters": {"dc1": {"bootstrap": "a:1"}, "dc2": {"bootstrap": "b:1"}},
 "flows": [
  {"name": "there", "from": "dc1", "to": "dc2", "topics": {"include": "orders"}}
 ]}
"""
ODD: dict[str, str | bytes] = {
    "as usual": USUAL,
    "comments": HEAD + COMMENTS,
    "a tab before a comment": USUAL.replace("name: there", "name: there\t# a\ttab"),
    "single quotes": USUAL.replace("there", "'there'").replace("dc1\n", "'dc1'\n"),
    "double quotes": USUAL.replace("there", '"there"').replace(" from:", ' "from":'),
    "braces": HEAD + "flows: [{name: there, from: dc1, to: dc2, topics: {include: orders}}]\n",
    "braces with spaces": HEAD
    + "flows:\n  - { name: there,   from: dc1, to: dc2, topics: { include: [ orders ] } }\n",
    "braces over lines": HEAD
    + "flows:\n  - {name: there, from: dc1,\n     to: dc2, topics: {include: orders}}\n",
    "braces with a comment inside": HEAD
    + "flows:\n  - {name: there,   # first\n     from: dc1, to: dc2, topics: {include: orders}}\n",
    "a line separator in a comment": USUAL.replace("flows:\n", "# one\u2028# two\nflows:\n"),
    "JSON": JSON,
    "CRLF": USUAL.replace("\n", "\r\n"),
    "both line ends": USUAL.replace("flows:\n", "flows:\r\n"),
    "both line ends at the flow": USUAL.replace("there\n", "there\r\n"),
    "a byte order mark": USUAL.encode("utf-8-sig"),
    "UTF-16": USUAL.encode("utf-16"),
    "anchors": HEAD + f"defaults:\n  flow: {{configs: &c {{sync: set}}}}\nflows:\n{FLOW}    configs: *c\n",
    "an alias at the end": HEAD + f"vars: {{a: &a [x]}}\nflows:\n{FLOW}    promoted: *a\n",
    "an alias in a list at the end": HEAD
    + f"vars: {{a: &a x}}\nflows:\n{FLOW}    promoted:\n      - z\n      - *a   # behind\n",
    "an alias as the state": HEAD + f"vars: {{s: &s paused}}\nflows:\n{FLOW}    state: *s  # shared\n",
    "an alias as the name": HEAD
    + "vars: {n: &n there}\nflows:\n"
    + FLOW.replace("name: there", "name: *n   # shared"),
    "an anchor and deeper keys": USUAL.replace("\n    ", "\n      ").replace("- name", "- &f\n      name"),
    "a merge key": USUAL.replace("    to: dc2\n", "    <<: {to: dc2}\n"),
    "long lines": HEAD + "flows:\n" + FLOW.replace("    topics: {include: orders}\n", LONG),
    "document markers": f"---\n{USUAL}...\n",
    "two documents": f"{HEAD}---\nflows:\n{FLOW}",
    "trailing spaces": USUAL.replace("flows:", "flows:   ").replace("there", "there  "),
    "no final newline": USUAL.rstrip("\n"),
    "blank lines": USUAL.replace("flows:\n", "\n\nflows:\n\n") + "\n\n",
    "a list at the left": USUAL.replace("\n    ", "\n  ").replace("  - name", "- name"),
    "wide indents": HEAD + WIDE,
    "aligned values": USUAL.replace("from: ", "from:   ").replace("to: ", "to:     "),
    "a list with its dash alone": USUAL.replace("  - name", "  -\n    name"),
    "numbers, dates and nulls": f"{HEAD}vars: {{a: 0x10, b: 2026-01-01, c: ~, e: }}\nflows:\n{FLOW}",
    "folded text": f"{HEAD}{FOLDED}flows:\n{FLOW}",
    "escapes": f'{HEAD}vars: {{a: "x\\ty\\u00e9", b: "\\U0001F600 😀"}}\nflows:\n{FLOW}',
    "an expression": f'{HEAD}vars: {{a: "x.*"}}\nflows:\n' + FLOW.replace("orders", '"{{ a }}"'),
    "a key behind a question mark": USUAL.replace("flows:\n", "? flows\n:\n"),
    "the state already": USUAL + "    state: 'paused'   # for now\n",
    "the state first": USUAL.replace("- name: there", "- state: paused\n    name: there"),
    "a list in a tag": USUAL.replace("flows:\n", "flows: !!seq\n"),
}


@pytest.fixture(params=[*ODD, *(example.name for example in EXAMPLES)])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    examples = {example.name: example.read_bytes() for example in EXAMPLES}
    content = {**ODD, **examples}[request.param]
    found = tmp_path / "t.yaml"
    found.write_bytes(content.encode() if isinstance(content, str) else content)
    return found


def loaded(path: Path, content: bytes) -> Topology:
    path.write_bytes(content)
    return load(path)


def alike(one: bytes, other: bytes) -> int:
    differs = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))


def changed(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Returns the bytes that were taken out and those that stand in their place."""
    start = alike(before, after)
    end = alike(before[start:][::-1], after[start:][::-1])
    return before[start : len(before) - end], after[start : len(after) - end]


def without_places(topology: Topology) -> dict[str, Flow]:
    return {name: structs.replace(flow, source=None) for name, flow in topology.flows.items()}


def test_a_state_changes_alone(file: Path) -> None:
    before, old = file.read_bytes(), load(file)
    name, *_ = old.flows

    text = with_states(text_to_edit(file.read_bytes(), file), {name: "promoted"})

    assert text is not None
    after = in_form_of(before, text)
    removed, _ = changed(before, after)
    assert removed in (b"", b"active", b"aus", b"*s")  # the value of before, or what differs in paus(ed)
    wanted = {**without_places(old), name: structs.replace(old.flows[name], state="promoted", source=None)}
    assert without_places(loaded(file, after)) == wanted


def test_a_promoted_pattern_is_added_alone(file: Path) -> None:
    before, old = file.read_bytes(), load(file)
    name, *_ = old.flows

    text = with_promoted(text_to_edit(file.read_bytes(), file), name, r"pay\.eu")

    assert text is not None
    after = in_form_of(before, text)
    removed, _ = changed(before, after)
    assert removed == b"" or b"*a" in removed  # an alias is written out: its anchor may be used elsewhere
    promoted = (*old.flows[name].promoted, r"pay\.eu")
    wanted = {**without_places(old), name: structs.replace(old.flows[name], promoted=promoted, source=None)}
    assert without_places(loaded(file, after)) == wanted


def test_a_reverse_flow_is_added_alone(file: Path) -> None:
    before, old = file.read_bytes(), load(file)
    name, *_ = old.flows

    text = with_reverse_flow(text_to_edit(file.read_bytes(), file), name, "reverse")

    if text is None:
        assert b"  -\n" in before  # nothing can be put beside such a flow
        return
    after = in_form_of(before, text)
    assert changed(before, after)[0] == b""
    new = without_places(loaded(file, after))
    assert new.pop("reverse").reverse_of == name
    assert new == without_places(old)
