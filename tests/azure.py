"""An emulator of Azure's blob storage, such as Azurite, whose address REPL_TEST_AZURE names.

`azurite-blob --inMemoryPersistence --skipApiVersionCheck`, then
`REPL_TEST_AZURE=http://127.0.0.1:10000 pytest tests/runtime/files/test_stores.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from urllib.request import Request, urlopen

from runtime.contract.client.stores import Setting

SERVER = "REPL_TEST_AZURE"
VARIABLE = "AZURE_TEST_KEY"
ACCOUNT = "devstoreaccount1"  # of Azurite, whose key is public
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CREDENTIALS = {VARIABLE: KEY}
_VERSION = "2021-08-06"


def settings(url: str) -> dict[str, Setting]:
    return {"endpoint": url, "account.key": {"env": VARIABLE}}


def address(container: str) -> str:
    return f"abfs://{container}@{ACCOUNT}.dfs.core.windows.net"


def create_container(url: str, name: str) -> str:
    """Creates a container by one request with a shared key, as Azure's documentation has it."""
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    text = f"PUT{chr(10) * 12}x-ms-date:{now}\nx-ms-version:{_VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}"
    text += "\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": now,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    with urlopen(Request(f"{url}/{ACCOUNT}/{name}?restype=container", method="PUT", headers=headers)):
        return name
