"""Tables of cases: what stands before the colon is read in the report, what stands behind it is given."""

from collections.abc import Mapping
from typing import Any

import pytest


def cases(names: str, table: Mapping[str, Any]) -> pytest.MarkDecorator:
    """`@cases("given then", {"a sentence": (1, 2)})` is a parametrised test, its ids are the sentences."""
    return pytest.mark.parametrize(names.split(), table.values(), ids=table.keys())
