"""The node that all stories share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from runtime.lab.cluster import Security
from runtime.lab.lab import Lab
from tests.kubernetes.cloud import NAMESPACE, Cloud, create_passwords, operator
from tests.kubernetes.node import kubernetes
from tests.labs import spec


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with kubernetes(tmp_path_factory.mktemp("node")) as (node, network):
        lab = Lab(tmp_path_factory.mktemp("lab"))
        lab.up([replace(spec(name, security=Security.SASL), host=network.address) for name in ("dc1", "dc2")])
        try:
            node.kubectl("create", "namespace", NAMESPACE)
            create_passwords(node, lab, NAMESPACE)
            yield Cloud(node, lab, operator(node, tmp_path_factory.mktemp("operator")))
        finally:
            lab.down(purge=True)
