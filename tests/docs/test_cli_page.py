"""docs/cli.md and the pages of its groups are what the commands say of themselves."""

import pytest

from tests.docs.cli_page import DOCS, pages


@pytest.mark.parametrize("name", pages())
def test_the_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run: make docs"
