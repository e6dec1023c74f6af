"""TLS as the cluster's settings want it, and what a failed handshake means."""

import ssl

from planner.observe.wire.failure import Refused
from runtime.contract.client_values import Tls
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.tls import short_reason, tls_context

# OpenSSL's verification codes that mean: signed by somebody we don't know.
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_EXPIRED, _NOT_YET = 10, 9
_WRONG_HOST = frozenset({62, 64})


def context_of(settings: Tls) -> ssl.SSLContext:
    """Makes the context, or raises Refused where a file cannot be read or is not what it should be."""
    try:
        return tls_context(settings)
    except LoginError as wrong:
        raise Refused(f"the TLS settings can't be used: {wrong.why}", wrong.hint) from None


def refusal(where: str, host: str, wrong: ssl.SSLError) -> Refused | None:
    """What the handshake's failure says for certain; None where the other side may not speak TLS at all."""
    if isinstance(wrong, ssl.SSLCertVerificationError):
        return _untrusted(where, host, wrong)
    reason = (wrong.reason or "").upper()
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return Refused(
            f"{where} wants a client certificate that it trusts",
            "set ssl.certificate.location and ssl.key.location",
        )
    if "ALERT" in reason:
        return Refused(
            f"{where} refused the TLS handshake ({short_reason(wrong)})",
            "look at the client certificate, ssl.cipher.suites and the broker's ssl.enabled.protocols",
        )
    return None


def _untrusted(where: str, host: str, wrong: ssl.SSLCertVerificationError) -> Refused:
    code = wrong.verify_code
    if code in _UNKNOWN_ISSUER:
        return Refused(
            f"the TLS certificate of {where} is not trusted ({wrong.verify_message})",
            "set ssl.ca.location to the PEM file of the authority that signed it",
        )
    if code in _WRONG_HOST:
        return Refused(
            f"the TLS certificate of {where} is not for {host}",
            "use a bootstrap name that stands in the certificate, "
            "or set ssl.endpoint.identification.algorithm: none",
        )
    if code in (_EXPIRED, _NOT_YET):
        return Refused(
            f"the TLS certificate of {where} is not valid now ({wrong.verify_message})",
            "renew it at the broker; if it is valid, this machine's clock is wrong",
        )
    return Refused(f"the TLS certificate of {where} is not accepted ({wrong.verify_message})")
