"""Two clusters of chosen versions, with flows and a job at each of them."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.lab.cluster import LabClusterSpec
from tests.bdd.running import SMALL, Town
from tests.labs import running_lab
from tests.processes import kill_together
from tests.topologies import at


@contextmanager
def town_of(folder: Path, *clusters: LabClusterSpec, flows: Sequence[dict[str, Any]]) -> Iterator[Town]:
    """Yields dc1 and dc2 with these flows. Jobs, clusters and the folder are removed at the end."""
    try:
        with running_lab(folder / "lab", *clusters) as lab:
            topology = at(lab, "town", folder, ("dc1", "dc2"))
            topology.more["flows"] = list(flows)
            topology.more["jobs"] = {"dc1": SMALL, "dc2": SMALL}
            town = Town(lab, topology, folder / "home", lambda word: word.removeprefix("into-"))
            try:
                yield town
            finally:
                kill_together([*town.processes("dc1").values(), *town.processes("dc2").values()])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
