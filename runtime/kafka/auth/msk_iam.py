"""This module makes the tokens by which Amazon MSK recognises an IAM identity, sent as OAUTHBEARER.

A token is an address that AWS's own signer signs. The credentials come from the SDK's chain where the process
runs: its environment, files, a web identity, or the metadata of the machine. No topology names them.
"""

from __future__ import annotations

import time

from runtime.contract.client.settings import MskIam
from runtime.contract.extras import Extra, missing_extra
from runtime.kafka.auth.login import LoginError, quoted

_CREDENTIALS = (
    "see that the SDK of AWS finds credentials where repl and its jobs run (aws sts get-caller-identity)"
)
_ROLE = "check sasl.aws.role.arn, its trust policy, and the credentials that the SDK of AWS finds here"


def msk_iam_token(source: MskIam) -> tuple[str, float]:
    """Returns a token and its lifetime in seconds. It blocks while credentials are looked for."""
    try:
        import boto3
        import botocore.session
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.config import Config
        from botocore.credentials import CredentialProvider, Credentials
    except ImportError:
        raise LoginError(*missing_extra(Extra.MSK, "sasl.mechanism AWS_MSK_IAM")) from None

    class Chain(CredentialProvider):  # type: ignore[misc]
        METHOD = "repl"

        def load(self) -> Credentials:
            if source.role is None:
                credentials = botocore.session.Session().get_credentials()
                if credentials is None:
                    raise LoginError("the SDK of AWS found no credentials", _CREDENTIALS)
                return credentials.get_frozen_credentials()
            bounded = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
            client = boto3.client("sts", region_name=source.region, config=bounded)
            role = client.assume_role(RoleArn=source.role, RoleSessionName=source.session)["Credentials"]
            return Credentials(role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])

    try:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            source.region, Chain()
        )
    except LoginError:
        raise
    except Exception as error:  # noqa: BLE001 - a provider of the chain may raise any
        whose = (
            f"the role {quoted(source.role)} could not be assumed" if source.role else "no token was signed"
        )
        raise LoginError(
            f"sasl.mechanism AWS_MSK_IAM: {whose}: {quoted(str(error))}",
            _ROLE if source.role else _CREDENTIALS,
        ) from None
    return token, max(0.0, expires_ms / 1000 - time.time())
