"""Hostile names and texts through every renderer: none acts in a terminal, comment or page."""

import ast
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from unicodedata import category

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from planner.cli import app
from planner.cli.console import SafeConsole, print_lines
from planner.cli.output import emit, guarded, say
from planner.model.address import topic_address
from planner.model.change import Action, Change, FieldChange
from planner.model.diagnostic import Failure, error, warning
from planner.render import readable
from planner.render.plan.documents import failed, html, markdown
from planner.render.plan.text import text
from planner.render.table import Cell, Column, table
from planner.render.yaml import scalar
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, observed, with_inputs
from tests.planner.cli.test_reading_bar import reading, shown
from tests.planner.render.scenes import everything

HERE = Path(__file__).parents[2]
ATTACKS = {
    "clear": "\x1b[2J\x1b[H",
    "clipboard": "\x1b]52;c;Y3VybA==\x07",
    "title": "\x1b]0;owned\x1b\\",
    "concealed": "\x1b[8m",
    "c1": "\x9b31m\x9d52;c;AAAA\x9c",
    "bidi": "\u202e\u2066\u2069\u202c",
    "zero width": "\u200b\u200d\ufeff\u2060\u00ad",
    "tags": "\U000e0041",
    "variation selectors": "\ufe00\ufe0f\U000e0100",
    "blanks": "\u2800\u3164\U0001d159",
    "invisible operators": "\U0001d173\U0001bca0\U00013430\U00016fe4",
    "half": "\ud800",
    "backspace": "a\b\b\x7f",
    "return": "safe\rerror: forged",
}
LINE = "name\nerror: forged"
DANGEROUS = re.compile(f"(?![\n\t])[{readable.UNSHOWABLE}]")
# What Unicode itself calls control, format, separator or half a character.
INVISIBLE = [
    sign for sign in map(chr, range(sys.maxunicode + 1)) if category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")
]
OUR_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
each = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())


def hostile_plan(attack: str):
    """A plan in which every text that comes from a cluster or a file is the attack."""
    plan = everything()
    field = FieldChange(("config", attack), attack, attack, note=attack, inherited=attack)
    change = Change(topic_address(attack, attack), Action.UPDATE, attack, (field,), notes=(attack,))
    unknown = replace(change, action=Action.UNKNOWN)
    diagnostics = (warning(attack, attack, address=attack), error(attack, attack, address=attack))
    plan = replace(plan, changes=(change, unknown), diagnostics=diagnostics, unknown={attack: attack})
    shop = replace(plan.topology, name=attack)
    seen = observed(replace(cluster(name=attack), id=attack))
    return with_inputs(plan, topology=shop, observed=seen, created_at=attack)


def test_every_character_that_unicode_says_is_invisible_is_escaped():
    assert [hex(ord(sign)) for sign in INVISIBLE if sign in readable.one_line(sign)] == []
    for attack in ("variation selectors", "blanks", "invisible operators"):
        assert readable.one_line(ATTACKS[attack]).isascii()


@each
def test_a_plan_in_text(attack: str):
    for line in text(hostile_plan(attack + LINE), width=100):
        assert not DANGEROUS.search(line)
        assert "\n" not in line
    coloured = "\n".join(text(hostile_plan(attack), colour=True))
    assert OUR_COLOUR.search(coloured)
    own = {"\x1b[0m", *(f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 36))}
    assert set(OUR_COLOUR.findall(coloured)) <= own
    assert not DANGEROUS.search(OUR_COLOUR.sub("", coloured))


@each
def test_a_plan_as_a_comment_and_as_a_page(attack: str):
    plan = hostile_plan(attack)
    for page in (markdown(plan), failed(plan.diagnostics), html(plan)):
        assert not DANGEROUS.search(page)


@each
def test_a_failure_with_everything_that_click_and_we_say(
    attack: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    @click.command()
    def command() -> None:
        click.echo(f"flow.{attack}")
        click.echo(f"flow.{attack}", err=True)
        say(attack, colour="green", bold=True)
        raise Failure([error(attack, attack, address=attack), warning(f"{attack}{LINE}")])

    monkeypatch.setattr(app, "root", command)
    assert app.run([]) == 1
    told = capsys.readouterr()
    assert not DANGEROUS.search(told.out)
    assert not DANGEROUS.search(told.err)
    assert "\nerror: forged" not in told.err


@each
def test_a_wrong_argument_is_shown_escaped(attack: str, capsys: pytest.CaptureFixture[str]):
    assert app.run(["plan", "--refresh", attack]) == 1
    assert not DANGEROUS.search(capsys.readouterr().err)


@each
def test_screens_and_tables(attack: str, capsys: pytest.CaptureFixture[str]):
    rows = [(Cell(attack + LINE, "bold"), attack)]
    with guarded():
        print_lines(lambda width: table((Column("A"), Column("B")), rows, width))
        print_lines(lambda _: [Text.assemble((attack + LINE, "bold"), attack, (LINE, "red"))])
    told = capsys.readouterr().out
    assert not DANGEROUS.search(told)
    assert len(told.splitlines()) == 3


@each
def test_the_bar_of_reading_and_what_is_printed_behind_it(attack: str):
    screen = io.StringIO()
    console = SafeConsole(file=screen, force_terminal=True, width=200, legacy_windows=False)
    with reading(console, delay_s=0) as bar:
        bar.progress(f"dc1{attack}", attack, 1, 2)
        bar.progress("[red]dc2", attack, 1, 2)
        assert shown(screen, "dc1")
        assert shown(screen, "[red]dc2")
    console.print(Text(attack, "red"))
    left = re.sub(r"\x1b\[(?:[0-9;]*m|\?25[lh]|\d*[AK])|\r", "", screen.getvalue())
    assert not DANGEROUS.search(left)
    if attack == ATTACKS["concealed"]:
        assert "\x1b[8m" not in screen.getvalue()


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_a_json_document_stays_the_same_document(document: dict[str, str]):
    screen = io.StringIO()
    before, sys.stdout = sys.stdout, screen
    try:
        with guarded():
            emit(document)
    finally:
        sys.stdout = before
    assert json.loads(screen.getvalue()) == document
    assert not DANGEROUS.search(screen.getvalue())


@given(st.text())
def test_yaml_of_an_import_passes_unchanged(value: str):
    if "{" in value:
        return  # written as an expression
    written = scalar(value)
    assert readable.lines(written) == written
    assert yaml.safe_load(f"a: {written}") == {"a": value}


def test_a_terminal_without_utf8_stops_no_command():
    program = (
        "from planner.cli.app import run\nimport sys\nsys.exit(run(['validate', 'ä\u202e\\udc80.yaml']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=HERE,
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"},
    )
    assert done.returncode == 1, done.stderr
    assert b"no such file" in done.stderr
    assert b"\\u202e" in done.stderr


def test_text_leaves_by_one_door():
    """Only `console` makes consoles, and only `output` and `console` write to a stream themselves."""
    doors = {"planner/cli/console.py", "planner/cli/output.py"}
    doors |= {"planner/workflows/rules_process.py"}  # its stdout is a pipe, read as JSON
    for file in (HERE / "planner").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and file.relative_to(HERE).as_posix() not in doors:
                called = ast.unparse(node.func)
                assert called not in {"Console", "print", "sys.stdout.write", "sys.stderr.write"}, file
                assert called not in {"click.secho", "click.style"}, f"{file}: use say"


LINKED = (
    "@octocat",
    "by @org/team now",
    "see #1",
    "owner/repo#12",
    "GH-7",
    "https://evil.example/x?a=b",
    "http://evil.example",
    "ftp://evil.example",
    "www.evil.example",
    "a.b@evil.example",
    "mailto:x@evil.example",
    "0123456789abcdef0123456789abcdef01234567",
)
MARKUP = (
    "![x](https://evil.example/x.png)",
    "[click](javascript:alert(1))",
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "&lt;img&#64;",
    "&#64;octocat",
    "**bold** __x__ ~~y~~ `z` ``z",
    "$$x$$",
    "</summary></details>",
)


def outside_code(page: str) -> str:
    """The page without its code spans, as CommonMark reads them: up to the next run of the same length."""
    left, at = "", 0
    while at < len(page):
        if page[at] == "\\":
            left, at = left + page[at : at + 2], at + 2
        elif run := re.compile(r"`+").match(page, at):
            end = re.compile(rf"(?<!`){run[0]}(?!`)").search(page, run.end())
            at = end.end() if end else run.end()
        else:
            left, at = left + page[at], at + 1
    return left


@pytest.mark.parametrize("attack", LINKED + MARKUP)
def test_a_comment_links_nothing_and_holds_no_markup_of_data(attack: str):
    plan = hostile_plan(attack)
    for page in (markdown(plan), failed(plan.diagnostics)):
        bare = outside_code(page)
        for ours in ("<sub>", "</sub>", "<details>", "</details>", "<summary>which</summary>"):
            bare = bare.replace(ours, "")
        assert not re.search(r"://|www\.|@|#\d|GH-\d|mailto:|[0-9a-f]{7,}", bare)
        assert not re.search(r"(?<!\\)[<>\[\]&]", bare)


@pytest.mark.parametrize("attack", LINKED + MARKUP)
def test_a_page_holds_no_element_of_data(attack: str):
    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add((tag, *(name for name, _ in attrs)))

    found: set[tuple[str, ...]] = set()
    Reader().feed(html(hostile_plan("harmless")))
    ours, found = found, set()
    Reader().feed(html(hostile_plan(attack)))
    assert found == ours
    assert not {"href", "src", "onerror", "img"} & {word for one in ours for word in one}
