"""A `kubectl` in a folder of the PATH that writes down what it is asked, and answers as it is told."""

import json
import sys
from pathlib import Path

_PROGRAM = """#!{python} -IS
import json, pathlib, sys
here = pathlib.Path({folder!r})
words = sys.argv[1:]
text = sys.stdin.read() if {{"-", "--patch-file=/dev/stdin"}} & {{*words}} else ""
with (here / "asked").open("a") as file:
    print(*words, file=file)
(here / "applied").write_text(text) if text else None
rules = here / "rules"
for asked, answer, error in reversed(json.loads(rules.read_text()) if rules.exists() else []):
    if all(word in words for word in asked.split()):
        print(answer, end="")
        sys.exit(error or None)
"""


class FakeKubectl:
    """The newest rule whose words are all in the command answers it; without a rule the answer is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rules: list[tuple[str, str, str]] = []
        program = folder / "kubectl"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    def answers(self, words: str, text: str) -> None:
        """To `get`, `logs`, …"""
        self._rule(words, text, "")

    def refuses(self, words: str, why: str) -> None:
        self._rule(words, "", why)

    def _rule(self, words: str, text: str, why: str) -> None:
        self._rules.append((words, text, why))
        (self.folder / "rules").write_text(json.dumps(self._rules))

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    @property
    def applied(self) -> str:
        return (self.folder / "applied").read_text()
