"""What the Helm chart in plans/kubernetes repeats of the product. `make test-kubernetes` installs it."""

import tomllib
from pathlib import Path

import yaml

from tests.docs.chart_rights import FILE, template

ROOT = Path(__file__).parents[2]


def test_the_rights_are_current() -> None:
    assert FILE.read_text() == template(), "run: make docs"


def test_the_chart_has_the_version_of_the_release() -> None:
    chart = yaml.safe_load((ROOT / "plans" / "kubernetes" / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
