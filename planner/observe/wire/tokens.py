"""Where an OAUTHBEARER token comes from: a command, OpenID Connect, or nothing but a name."""

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from planner.kafka.token_command import NoToken, run_token_command
from planner.observe.wire.failure import Refused
from runtime.contract.client_values import TokenCommand, TokenEndpoint, UnsecuredToken

TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken


def token_of(source: TokenSource, timeout_s: float) -> str:
    """Refused where none can be had. What a token or a secret says is never repeated."""
    match source:
        case TokenCommand():
            return _printed(source, timeout_s)
        case TokenEndpoint():
            return _granted(source, timeout_s)
        case UnsecuredToken():
            return _unsigned(source, time.time())


def _printed(source: TokenCommand, timeout_s: float) -> str:
    try:
        return run_token_command(source.command, timeout_s).text
    except NoToken as failed:
        raise Refused(str(failed), "look at REPL_OAUTHBEARER_TOKEN_COMMAND") from None


def _granted(source: TokenEndpoint, timeout_s: float) -> str:
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    pair = f"{urllib.parse.quote(source.client_id)}:{urllib.parse.quote(source.client_secret)}"
    if urllib.parse.urlsplit(source.url).scheme not in ("https", "http"):
        raise Refused("the token endpoint is no http address", "look at sasl.oauthbearer.token.endpoint.url")
    request = urllib.request.Request(  # noqa: S310  the scheme was looked at just above
        source.url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
            "Accept": "application/json",
        },
    )
    try:
        context = ssl.create_default_context(cafile=source.ca_location)
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:  # noqa: S310
            text = answer.read(1 << 20).decode()
    except urllib.error.HTTPError as refused:
        refused.close()
        raise Refused(
            f"the token endpoint {source.url} answered {refused.code} {refused.reason}",
            "look at sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and sasl.oauthbearer.scope",
        ) from None
    except OSError as wrong:
        reason = getattr(wrong, "reason", wrong)
        raise Refused(f"the token endpoint {source.url} can't be reached ({reason})") from None
    return _token_in(text, f"the token endpoint {source.url}")


def _token_in(text: str, origin: str) -> str:
    """The text itself, or `access_token` of a JSON object."""
    if not text.startswith("{"):
        if not text:
            raise Refused(f"{origin} gave no token")
        return text
    try:
        token = json.loads(text).get("access_token")
    except ValueError:
        token = None
    if not isinstance(token, str) or not token:
        raise Refused(f"{origin} gave no access_token")
    return token


def _unsigned(source: UnsecuredToken, now: float) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    issued = int(now)
    claims: dict[str, object] = {"sub": source.principal, "iat": issued, "exp": issued + source.lifetime_s}
    return f"{part({'alg': 'none'})}.{part(claims)}."
