"""The records of a replay pass once their schemas are at the destination."""

from uuid import UUID

import pytest

from runtime.batch import Record, RewriteSpec, prepare
from runtime.batch.schema_ids import SchemaMissing
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.replay.schemas import ReplayedSchemas
from runtime.schemas.client import SchemaRegistry
from runtime.schemas.copier import SchemaCopier
from runtime.schemas.id_map import SchemaIdMap
from runtime.slot.partition import Cursor
from runtime.slot.read.batch_filter import FilteredBatches
from tests.fakes.registry import registry_server
from tests.runtime.batch.forge import HERE, START, batch_bytes, sets

SPEC = RewriteSpec(HERE, 8 << 20)


@pytest.mark.parametrize("knows_guids", [False, True])
async def test_the_result_says_that_schemas_were_not_found_by_their_guids(knows_guids: bool) -> None:
    with registry_server() as here, registry_server() as there:
        there.guids = knows_guids
        clients = [SchemaRegistry(RegistrySpec(url=server.url)) for server in (here, there)]
        copier = SchemaCopier(clients[0], clients[1], SchemaSync(sync=True, ids="translate"), ended=True)
        schemas = ReplayedSchemas(SchemaIdMap(copier, "orders", "copied"))
        record = Record(100, START, None, b"v", (("__value_schema_id", b"\1" + UUID(int=7).bytes),))
        outgoing = prepare(sets(batch_bytes([record])), SPEC, START).outgoing
        passed = await schemas.admit(FilteredBatches(outgoing, Cursor(101, 7), [], None), SPEC)
        for client in clients:
            client.close()
    if knows_guids:
        assert isinstance(passed.failure, SchemaMissing)
        assert schemas.note == ""
    else:
        assert passed.outgoing == outgoing
        why = f"{there.url}: it knows no GUIDs of schemas"
        assert schemas.note == f"records that name their schema by a GUID did not wait for it: {why}"
