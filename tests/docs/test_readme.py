"""README.md stays short, and its pictures small."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = 90
PICTURE_BYTES = 150_000


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LINES


def test_pictures_are_small() -> None:
    sizes = {one.name: one.stat().st_size for one in (ROOT / "docs" / "pictures").iterdir()}

    assert sizes
    assert not {name: size for name, size in sizes.items() if size > PICTURE_BYTES}
