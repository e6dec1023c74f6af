"""A `kubectl` in a folder of the PATH that writes down what it is asked, and answers as it is told."""

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import pathlib, sys
here = pathlib.Path({folder!r})
text = sys.stdin.read() if "-" in sys.argv else ""
with (here / "asked").open("a") as file:
    print(*sys.argv[1:], file=file)
(here / "applied").write_text(text) if text else None
answer = here / (sys.argv[3] if len(sys.argv) > 3 else "none")
if answer.with_suffix(".error").exists():
    sys.exit(answer.with_suffix(".error").read_text())
print(answer.read_text() if answer.exists() else "", end="")
"""


class FakeKubectl:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    def answers(self, word: str, text: str) -> None:
        """To `get`, `logs`, …"""
        (self.folder / word).write_text(text)

    def refuses(self, word: str, why: str) -> None:
        (self.folder / f"{word}.error").write_text(why)

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    @property
    def applied(self) -> str:
        return (self.folder / "applied").read_text()
