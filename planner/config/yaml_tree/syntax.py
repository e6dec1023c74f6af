"""Explains the errors of the YAML scanner in plain words, without the line: it may hold a secret."""

from typing import Any

from planner.model.diagnostic import Diagnostic, SourceLocation, error

# A part of the scanner's message, what is wrong, and how to correct it.
SENTENCES: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        'a ": " stands where no value can begin',
        'give keys of one map the same indent, and quote a value that contains ": "',
    ),
    (
        "did not find expected key",
        "this line fits none of the maps above it",
        "give keys of one map the same indent",
    ),
    (
        "did not find expected '-' indicator",
        "this line fits none of the lists above it",
        'begin each entry with "- ", all at the same indent',
    ),
    ("could not find expected ':'", 'a key without ":"', 'write "key: value", or close the quote before it'),
    ("did not find expected ',' or ']'", "a list in brackets that is not closed", 'add "," or "]"'),
    ("did not find expected ',' or '}'", "a map in braces that is not closed", 'add "," or "}"'),
    ("found unexpected end of stream", "a quoted text that never ends", "close the quote"),
    ("found unexpected document indicator", "a quoted text that never ends", "close the quote"),
    (
        "found unknown escape character",
        "a backslash in double quotes begins an escape, and this is none",
        "write it twice (\"\\\\.\"), or use single quotes ('\\.')",
    ),
    (
        "did not find expected hexdecimal number",
        "an escape without its hexadecimal digits",
        "write the backslash twice, or use single quotes",
    ),
    (
        "block sequence entries are not allowed",
        'a "- " that no list can have here',
        "put it on a line of its own",
    ),
    ("block mapping", "a map that this place can't hold", "put it on lines of its own, indented"),
    ("incompatible YAML document", "another version of YAML", "leave the %YAML line out"),
    ("found undefined tag handle", "a tag (!) that is not read here", "quote a text that begins with !"),
    (
        "did not find expected alphabetic or numeric character",
        "an alias or an anchor without a name",
        'quote a text that begins with "*" or "&"',
    ),
    (
        "did not find expected <document start>",
        "text behind the end of the document",
        "give keys of one map the same indent",
    ),
    (
        "did not find expected node content",
        "a value that is missing or begins with a sign YAML keeps for itself",
        "quote it",
    ),
    (
        "did not find expected comment or line break",
        'more text behind the "|" or ">" that begins a text of several lines',
        "go on in the next line, indented, or quote the value",
    ),
    ("found unexpected ':'", 'a ":" that no value can hold here', "quote the value"),
    ("mapping keys are not allowed", 'a "? " that no key can begin with here', "quote it"),
    (
        "could not find expected directive name",
        'a "%" at the beginning of a line',
        "quote it, or leave it out",
    ),
    ("control characters are not allowed", "a control character", "remove it"),
    ("special characters are not allowed", "a control character", "remove it"),
)
# The scanner notices these far below the mistake: the place to show is where the text or bracket opens.
SHOWN_AT_THE_OPENING = (
    "unexpected end of stream",
    "unexpected document indicator",
    "',' or ']'",
    "',' or '}'",
)
UNQUOTED_EXPRESSION = (
    "an expression that is not quoted is a map to YAML",
    'quote the whole value: "{{ … }}"',
)
TAB = ("a tab in the indent", "indent by spaces")


def explain(wrong: Any, text: str, file: str) -> Diagnostic:
    """Returns a YAMLError as a diagnostic at its place."""
    problem = str(getattr(wrong, "problem", None) or getattr(wrong, "reason", None) or "not YAML")
    marks = [getattr(wrong, "problem_mark", None), getattr(wrong, "context_mark", None)]
    if any(part in problem for part in SHOWN_AT_THE_OPENING):
        marks.reverse()
    mark = marks[0] or marks[1]
    if mark is None:
        line, column = place_of(text, getattr(wrong, "position", 0) or 0)
    else:
        line, column = mark.line + 1, mark.column + 1
    what, hint = _words(problem, _line(text, line), column)
    if what == UNQUOTED_EXPRESSION[0]:
        column = _line(text, line).index("{{") + 1
    return error(what, hint, source=SourceLocation(file, line, column), code="syntax")


def _words(problem: str, line: str, column: int) -> tuple[str, str]:
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or line[column - 1 : column] == "\t":
        return TAB
    before, opened, _ = line.partition("{{")
    if opened and not before.rstrip().endswith(("'", '"')) and before.count('"') % 2 == 0:
        return UNQUOTED_EXPRESSION
    if "cannot start any token" in problem:
        sign = line[column - 1 : column]
        return f'a value can\'t begin with "{sign}"', "quote it"
    for part, what, hint in SENTENCES:
        if part in problem:
            return what, hint
    return f"not YAML: {problem}", "correct the line, or quote the value"


def _line(text: str, number: int) -> str:
    start = 0
    for _ in range(number - 1):
        end = text.find("\n", start)
        if end < 0:
            return ""
        start = end + 1
    end = text.find("\n", start)
    return text[start : end if end >= 0 else len(text)]


def place_of(text: str, position: int) -> tuple[int, int]:
    """Returns line and column, both from 1, of a position in a text."""
    line = text.count("\n", 0, position) + 1
    return line, position - (text.rfind("\n", 0, position) + 1) + 1
