"""The node that all stories share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from runtime.lab.cluster import Security
from tests.kubernetes.cloud import NAMESPACE, Cloud, create_passwords, operator
from tests.kubernetes.node import kubernetes
from tests.labs import running_lab, spec


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with kubernetes(tmp_path_factory.mktemp("node")) as (node, network):
        clusters = (spec(name, security=Security.SASL) for name in ("dc1", "dc2"))
        reached = (replace(cluster, host=network.address) for cluster in clusters)
        with running_lab(tmp_path_factory.mktemp("lab"), *reached) as lab:
            node.kubectl("create", "namespace", NAMESPACE)
            create_passwords(node, lab, NAMESPACE)
            yield Cloud(node, lab, operator(node, tmp_path_factory.mktemp("operator")))
