"""This module holds the names and Java settings of SASL and TLS that brokers and clients share.

It is pure.
"""

from pathlib import Path

SCRAM = "SCRAM-SHA-512"
ADMIN = "admin"
CONTROLLER = "controller"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(mechanism: str, user: str, password: str, **users: str) -> str:
    """Returns a JAAS configuration. `users` are the accounts that a PLAIN server accepts."""
    module = _SCRAM_MODULE if mechanism == SCRAM else _PLAIN_MODULE
    known = "".join(f' user_{name}="{secret}"' for name, secret in users.items())
    return f'{module} required username="{user}" password="{password}"{known};'


def java_tls(ca: Path, key_and_certificate: Path) -> dict[str, str]:
    """Returns Java's TLS settings for PEM files."""
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_and_certificate),
    }
