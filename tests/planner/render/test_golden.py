"""What people and machines read, to the letter. REPL_GOLDEN=write writes the files anew: look at the diff."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.model.plan import Plan
from planner.render.plan.documents import markdown
from planner.render.plan.json import json_text
from planner.render.plan.text import text
from tests.fakes.golden import agreed
from tests.planner.render.scenes import SCENES

GOLDEN = Path(__file__).parent / "golden"


def on_paper(plan: Plan) -> str:
    return "\n".join(text(plan)) + "\n"


def narrow(plan: Plan) -> str:
    return "\n".join(text(plan, width=40)) + "\n"


DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

RENDERERS: dict[str, Callable[[Plan], str]] = {
    "txt": on_paper,
    "40.txt": narrow,
    "json": lambda plan: json_text(plan) + "\n",
    "md": markdown,
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("kind", RENDERERS)
def test_as_it_was_agreed(scene: str, kind: str) -> None:
    rendered = DIGEST.sub("sha256:the-digest-of-the-plan", RENDERERS[kind](SCENES[scene]()))

    agreed(GOLDEN / f"{scene}.{kind}", rendered)
    assert "canary" not in rendered
