"""What is said of a topology that can't be meant: the files of mistakes/ hold given and then, to the letter.

A section is a topology, behind two clusters if it has none of its own. Its `%s` stands for each line after
`--` that is not indented; what is said of it is indented. REPL_GOLDEN=write writes it anew: look at the diff.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.model.diagnostic import Severity
from tests.fakes.golden import agreed
from tests.planner.config.given import said_of

FILES = sorted((Path(__file__).parent / "mistakes").glob("*.txt"))


def as_it_is(section: str, folder: Path, severity: Severity) -> Iterator[str]:
    """The lines of a section, with what is said now."""
    text, _, body = f"{section}\n".partition("\n--\n")
    yield from (text, "--")
    for snippet in [line for line in body.splitlines() if line and not line.startswith("  ")] or [""]:
        if snippet:
            yield snippet
        topology = text.partition("\n")[2].replace("%s", snippet) + "\n"
        found = [line.replace(str(folder), "FOLDER") for line in said_of(folder, topology, severity)]
        assert found, f"nothing is said of {text} {snippet}"
        assert "hidden" not in "".join(found)
        yield from (f"  {line}" for line in found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_mistake_is_said_where_it_stands(file: Path, tmp_path: Path) -> None:
    severity = Severity.WARNING if file.stem == "warnings" else Severity.ERROR
    sections = file.read_text().removeprefix("== ").split("\n\n== ")
    shown = ["\n".join(as_it_is(section, tmp_path, severity)) for section in sections]
    agreed(file, "== " + "\n\n== ".join(shown) + "\n")
