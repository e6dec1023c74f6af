"""The login in a file of MirrorMaker 2 becomes the login that the wire uses."""

import pytest

from planner.config.importing.mm2 import convert
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import Kerberos, MskIam, Password, Sasl, Store, Tls, wire_settings

MSK = "b-1.orders.c2.kafka.eu-west-1.amazonaws.com:9092"  # names the region
FLOW = f"clusters = A, B\nA.bootstrap.servers = {MSK}\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
SECRETS = {
    "A_SASL_PASSWORD": "pencil",
    "A_SSL_KEYSTORE_PASSWORD": "of the key",
    "A_SSL_TRUSTSTORE_PASSWORD": "of the authority",
}
SCRAM = """\
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = SCRAM-SHA-512
A.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \
  username="repl" password="pencil";
"""
KERBEROS = """\
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = GSSAPI
A.sasl.kerberos.service.name = kafka
A.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
  keyTab="/repl.keytab" principal="repl";
"""
IAM = """\
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = AWS_MSK_IAM
A.sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required;
A.sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
STORES = """\
A.security.protocol = SSL
A.ssl.keystore.location = /repl.p12
A.ssl.keystore.type = PKCS12
A.ssl.keystore.password = of the key
A.ssl.truststore.location = /authority.p12
A.ssl.truststore.type = PKCS12
A.ssl.truststore.password = of the authority
"""
OWN, AUTHORITY = Store("/repl.p12", "of the key"), Store("/authority.p12", "of the authority")


@pytest.mark.parametrize(
    ("lines", "sasl", "tls"),
    [
        (SCRAM, Password("SCRAM-SHA-512", "repl", "pencil"), None),
        (KERBEROS, Kerberos("kafka", "repl", "/repl.keytab"), None),
        (IAM, MskIam("eu-west-1"), None),
        (STORES, None, Tls(keystore=OWN, truststore=AUTHORITY)),
    ],
    ids=["SCRAM", "Kerberos", "IAM", "key stores"],
)
def test_a_login_of_java_is_that_of_the_wire(lines: str, sasl: Sasl | None, tls: Tls | None) -> None:
    cluster = convert([("mm2.properties", FLOW + lines)], "mm2").topology.clusters["A"]
    settings = wire_settings(MSK, ClientSecrets(SECRETS).resolve(MSK, cluster.client))
    assert (settings.sasl, settings.tls, settings.notes) == (sasl, tls, ())
