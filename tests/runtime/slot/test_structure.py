"""Objects own their state: no module of the slot writes an attribute of another object."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SLOT = Path(__file__).parents[3] / "runtime" / "slot"
# Attributes of objects that other packages own.
OUTSIDE = {"self._session.limits", "_LOGGER.propagate", "timer.daemon"}


def modules() -> list[Path]:
    return sorted(SLOT.rglob("*.py"))


def written(tree: ast.AST) -> Iterator[str]:
    """The attributes of objects other than `self` that a module assigns."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case _:
                continue
        for one in targets:
            for each in one.elts if isinstance(one, ast.Tuple) else [one]:
                if isinstance(each, ast.Attribute) and ast.unparse(each.value) != "self":
                    yield ast.unparse(each)


@pytest.mark.parametrize("module", modules(), ids=lambda path: str(path.relative_to(SLOT)))
def test_a_module_writes_no_attribute_of_another_object(module: Path) -> None:
    assert set(written(ast.parse(module.read_text()))) <= OUTSIDE


def test_the_check_finds_an_attribute_that_another_object_owns() -> None:
    assert list(written(ast.parse("copy.state, self.one = 1, 2\nself.two.three += 1"))) == [
        "copy.state",
        "self.two.three",
    ]
