"""Two clusters with the product's own topics; `sides["dc1"]` and `sides["dc2"]`."""

import pytest

from runtime.lab.lab import Lab
from tests.records import coordinators_ready
from tests.runtime.slot.world import Side


def sides_of(lab: Lab) -> dict[str, Side]:
    made = {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}
    for side in made.values():
        side.create_internal()
        coordinators_ready(side.client)
    return made


@pytest.fixture(scope="session")
def sides(lab: Lab) -> dict[str, Side]:
    return sides_of(lab)
