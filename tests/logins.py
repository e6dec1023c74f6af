"""Clusters for each login: a KDC, a handler of tokens in the broker, and certificates that are renewed."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runtime.lab.cluster import Listener, Security
from runtime.lab.create import LISTENERS
from runtime.lab.kdc import Kdc
from runtime.lab.kit import find_kit
from runtime.lab.lab import Lab
from runtime.lab.ports import free_ports
from tests.certificates import Renewals, renewed
from tests.iam import CLIENT_SECRET, HANDLER, REGION, TokenChecker, checking, handler_jar
from tests.labs import JVM, running_lab, spec
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
    def kerberos(self) -> dict[str, Any]:
        """What stands below `client:` for the principal repl."""
        return next(iter(self.lab.clusters.values())).settings("repl")

    @property
    def iam(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.aws.region": REGION,
        }

    @property
    def tokens(self) -> dict[str, object]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{self.checker.url}token",
            "sasl.oauthbearer.client.id": "repl",
            "sasl.oauthbearer.client.secret": {"env": "CLIENT_SECRET"},
        }

    def clusters(self, mechanism: str) -> dict[str, dict[str, object]]:
        """The clusters of a topology for whom `mechanism` names: kerberos, iam, tokens or scram."""
        found: dict[str, dict[str, object]] = {}
        for name, cluster in self.lab.clusters.items():
            client: Mapping[str, object]
            match mechanism:
                case "kerberos":
                    client = cluster.settings("repl")
                case "scram":
                    client = cluster.password_settings("repl")
                case _:
                    client = self.iam if mechanism == "iam" else self.tokens
            found[name] = {"bootstrap": cluster.bootstrap, "client": client}
        return found

    @property
    def environment(self) -> Mapping[str, str]:
        """What the operator sets where repl and its jobs run."""
        return {
            "KRB5_CONFIG": str(self.kdc.client_settings),
            "KRB5CCNAME": "MEMORY:nobody",
            "REPL_ALLOW_FILES": str(self.lab.home),
            "CLIENT_SECRET": CLIENT_SECRET,
            "REPL_ALLOW_INSECURE_TOKEN_ENDPOINT": "1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL_STS": self.checker.sts or "",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_CONFIG_FILE": os.devnull,
        }


@contextmanager
def login_lab(folder: Path, *clusters: str, security: Security = Security.KERBEROS) -> Iterator[Logins]:
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
        Lab(folder / "lab").kdc.create(LIFETIME_S)
        java_options = f"-javaagent:{jar}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", java_options)  # storage is formatted with it, too
            sites = (spec(name, security=security, properties=properties) for name in clusters)
            jvm = (*JVM, f"-Diam.checker={checker.url}")
            lab = running.enter_context(
                running_lab(folder / "lab", *(replace(site, jvm=jvm) for site in sites))
            )
        yield Logins(lab, checker, java_options)


CERTIFICATE_S = 45.0  # the lifetime of a client's certificate


@dataclass(frozen=True)
class Certified:
    """A lab whose brokers have a listener for clients of an authority that renews their certificates."""

    lab: Lab
    renewals: Renewals
    java_options: str = ""

    def clusters(self, login: str, suffix: str = "") -> dict[str, dict[str, object]]:
        """The clusters of a topology whose certificates have this form: keystore, pem, encrypted-pem, …"""
        return {
            name: {
                "bootstrap": cluster.listener(CERTIFICATES)[1],
                "client": self.renewals.settings(login, name, cluster.secret_file("ca.pem"), suffix),
            }
            for name, cluster in self.lab.clusters.items()
        }

    @property
    def environment(self) -> Mapping[str, str]:
        return {"REPL_ALLOW_FILES": str(self.renewals.folder.parent)}


CERTIFICATES = "CERTIFICATES"


@contextmanager
def certificate_lab(folder: Path, *clusters: str) -> Iterator[Certified]:
    renewals = Renewals(folder / "clients", "repl", CERTIFICATE_S)
    listener = f"listener.name.{CERTIFICATES.lower()}"
    properties = {
        f"{listener}.ssl.truststore.type": "PEM",
        f"{listener}.ssl.truststore.location": str(renewals.authority_file),
    }
    ports = free_ports()
    sites = (
        replace(
            spec(name, security=Security.TLS, properties=properties),
            port=port,
            listeners=(Listener(CERTIFICATES, {1: f"127.0.0.1:{port + LISTENERS}"}),),
        )
        for name, port in zip(clusters, ports, strict=False)
    )
    with running_lab(folder / "lab", *sites) as lab, renewed(renewals):
        yield Certified(lab, renewals)
