"""moto's server, with conditional writes as S3 has them.

moto looks whether a key exists and writes it later, so two writes at once could both succeed, which no real
store allows. Here conditional writes go one by one.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto import server

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")
_one_by_one = threading.Lock()


class _Application(server.DomainDispatcherApplication):  # type: ignore[misc, name-defined]
    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("PUT", "POST") and any(name in environ for name in _CONDITIONS):
            with _one_by_one:
                return list(super().__call__(environ, start_response))
        answer: Iterable[bytes] = super().__call__(environ, start_response)
        return answer


if __name__ == "__main__":
    server.DomainDispatcherApplication = _Application  # type: ignore[attr-defined]
    server.main(sys.argv[1:])
