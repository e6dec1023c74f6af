"""Clusters whose clients log in by Kerberos or by IAM: a KDC, and a handler of tokens in the broker."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runtime.lab.cluster import Security
from runtime.lab.kdc import Kdc
from runtime.lab.kit import find_kit
from runtime.lab.lab import Lab
from tests.iam import HANDLER, REGION, TokenChecker, checking, handler_jar
from tests.labs import JVM, spec
from tests.s3 import s3_server

KEY, SECRET = "AKIAREPL", "a secret key of IAM"
ROLE = "arn:aws:iam::123456789012:role/repl"
LIFETIME_S = 4  # of a ticket, of a token, and of a session at a broker
_BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True)
class Logins:
    """A lab whose brokers also take GSSAPI and the tokens of IAM."""

    lab: Lab
    checker: TokenChecker
    java_options: str  # of JDK_JAVA_OPTIONS, where brokers are started

    @property
    def kdc(self) -> Kdc:
        return self.lab.kdc

    @property
    def kerberos(self) -> dict[str, str]:
        """What stands below `client:` for the principal repl."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.principal": "repl",
            "sasl.kerberos.keytab": str(self.kdc.keytab_file("repl")),
        }

    @property
    def iam(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.aws.region": REGION,
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """What the operator sets where repl and its jobs run."""
        return {
            "KRB5_CONFIG": str(self.kdc.client_settings),
            "KRB5CCNAME": "MEMORY:nobody",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL_STS": self.checker.sts or "",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_CONFIG_FILE": os.devnull,
        }


@contextmanager
def login_lab(folder: Path, *clusters: str) -> Iterator[Logins]:
    kit = find_kit(lambda *_: None)
    with ExitStack() as running:
        checker = TokenChecker({KEY: SECRET}, running.enter_context(s3_server(folder)).url, LIFETIME_S)
        running.enter_context(checking(checker))
        jar = handler_jar(folder / "iam", kit.java, kit.classpath)
        client = "listener.name.client"
        properties = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,GSSAPI,OAUTHBEARER",
            f"{client}.oauthbearer.sasl.jaas.config": f"{_BEARER_MODULE} required;",
            f"{client}.oauthbearer.sasl.server.callback.handler.class": HANDLER,
            "connections.max.reauth.ms": str(LIFETIME_S * 1000),
            "allow.everyone.if.no.acl.found": "true",
        }
        lab = Lab(folder / "lab")
        lab.kdc.create(LIFETIME_S)
        running.callback(lab.down, purge=True)
        java_options = f"-javaagent:{jar}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", java_options)  # storage is formatted with it, too
            sites = (spec(name, security=Security.KERBEROS, properties=properties) for name in clusters)
            lab.up([replace(site, jvm=(*JVM, f"-Diam.checker={checker.url}")) for site in sites])
        yield Logins(lab, checker, java_options)
