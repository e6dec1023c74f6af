"""The distribution, built once from the sources that git knows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def sources(into: Path) -> Path:
    """Returns a copy of the sources that git knows, with other times and no file that a checkout gathers."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, into / name)
    return into


def build(checkout: Path, into: Path) -> tuple[Path, Path]:
    """Returns the wheel and the sdist of a checkout, built as `make dist` builds them."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(checkout)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this checkout."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))
