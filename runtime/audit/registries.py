"""Opens the schema registries of a flow for an operator's command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing

from runtime.audit.ledger import AuditFailure
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.schemas.client import NotInRegistry, RegistryRefused, RegistryUnavailable, SchemaRegistry


@asynccontextmanager
async def open_registries(
    flow: FlowSpec, registries: Mapping[str, RegistrySpec]
) -> AsyncIterator[tuple[SchemaRegistry, SchemaRegistry]]:
    """Yields the clients of the registries of the flow's source and destination, and closes them.

    Raises AuditFailure where one of them does not answer.
    """
    with (
        closing(SchemaRegistry(registries[flow.source])) as source,
        closing(SchemaRegistry(registries[flow.destination])) as destination,
    ):
        for cluster, registry in ((flow.source, source), (flow.destination, destination)):
            try:
                await registry.compatibility()
            except NotInRegistry:
                continue
            except (RegistryUnavailable, RegistryRefused) as error:
                why = f"its schema registry can't be read: {error}"
                hint = f"look at registries.{cluster}, and run this again once the registry answers"
                raise AuditFailure(cluster, why, hint) from None
        yield source, destination
