"""Managed services that speak Kafka's protocol: how their addresses look, and what their APIs lack.

Every statement is from the service's public documentation, which it names. What a live cluster offers is a
question to its brokers, which `repl doctor` asks, too.
"""

from collections.abc import Iterable

from msgspec import Struct


class ServiceLimit(Struct, frozen=True):
    """A difference from Apache Kafka, what to do about it, and where the service documents it."""

    what: str
    hint: str
    source: str


class ManagedService(Struct, frozen=True):
    """A service, recognised by the domains of its brokers. `login` says how its clients log in."""

    name: str
    domains: tuple[str, ...]
    login: str
    limits: tuple[ServiceLimit, ...]


_CONFLUENT = "https://docs.confluent.io/cloud/current"
_AZURE = "https://learn.microsoft.com/en-us/azure/event-hubs"

MANAGED_SERVICES = (
    ManagedService(
        "Confluent Cloud",
        (".confluent.cloud",),
        "Confluent Cloud takes security.protocol SASL_SSL and sasl.mechanism PLAIN, with an API key of the"
        " cluster as sasl.username and its secret as sasl.password",
        (
            ServiceLimit(
                "A list of ACLs names service accounts by their integer ids, User:1234 for User:sa-…",
                "declare acls with the integer ids, or each plan takes them for others",
                f"{_CONFLUENT}/security/access-control/acls/operations.html",
            ),
            ServiceLimit(
                "ACLs on the cluster grant CREATE, DESCRIBE, IDEMPOTENT_WRITE and ALTER, no ALTER_CONFIGS",
                "leave client quotas out of the topology",
                f"{_CONFLUENT}/security/access-control/acls/operations.html",
            ),
            ServiceLimit(
                "Client quotas are made by its CLI, console or Terraform provider, and Basic and Standard"
                " clusters have none",
                "leave quotas and quotas.sync out",
                f"{_CONFLUENT}/clusters/client-quotas-quickstart.html",
            ),
            ServiceLimit(
                "Some settings of topics cannot be edited, compression.type among them",
                "exclude them in the flow's configs",
                f"{_CONFLUENT}/topics/manage.html",
            ),
        ),
    ),
    ManagedService(
        "Azure Event Hubs",
        (
            ".servicebus.windows.net",
            ".servicebus.chinacloudapi.cn",
            ".servicebus.usgovcloudapi.net",
            ".servicebus.cloudapi.de",
        ),
        "Azure Event Hubs takes security.protocol SASL_SSL and sasl.mechanism PLAIN, with"
        " $ConnectionString as sasl.username and the namespace's connection string as sasl.password; the"
        " Basic tier takes no clients of Kafka",
        (
            ServiceLimit(
                "Transactions are in public preview in the Premium and Dedicated tiers, and nowhere else",
                "use it as a source: a flow writes in transactions",
                f"{_AZURE}/apache-kafka-transactions",
            ),
            ServiceLimit(
                "Partitions and retention are set in Azure's portal or by its APIs, not by Kafka's requests",
                "declare no topics there, and make no mirrors of it",
                f"{_AZURE}/apache-kafka-configurations",
            ),
            ServiceLimit(
                "Requests of more than 1,046,528 bytes end the connection",
                "use it as a source: batches are copied as they are",
                f"{_AZURE}/apache-kafka-configurations",
            ),
            ServiceLimit(
                "Compressed batches are supported in the Premium and Dedicated tiers, with gzip alone",
                "use it as a source: batches keep their codec",
                f"{_AZURE}/azure-event-hubs-apache-kafka-overview",
            ),
            ServiceLimit(
                "Rights are roles of Microsoft Entra ID, or shared access policies",
                "leave acls and acls.sync out",
                f"{_AZURE}/azure-event-hubs-apache-kafka-overview",
            ),
            ServiceLimit(
                "Connections that stand go on when a shared access key is regenerated",
                "start the job again to have the old key out of use",
                f"{_AZURE}/azure-event-hubs-apache-kafka-overview",
            ),
        ),
    ),
)


def service_at(addresses: Iterable[str]) -> ManagedService | None:
    """Returns the service that one of these addresses, HOST or HOST:PORT, belongs to."""
    hosts = [address.strip().rpartition(":")[0] or address.strip() for address in addresses]
    names = [host.rstrip(".").lower() for host in hosts]
    for service in MANAGED_SERVICES:
        if any(name.endswith(service.domains) for name in names):
            return service
    return None
