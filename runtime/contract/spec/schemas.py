"""Declares schema registries, and how the schemas of a flow's records reach its destination."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import field

from runtime.contract.client.stores import Setting
from runtime.contract.spec.shapes import Key, RecordName, SettingsShape, SpecStruct, TextShape

RecordPart = Literal["key", "value"]
PARTS: Final[tuple[RecordPart, ...]] = ("key", "value")

SubjectNames = Literal["topic_name", "topic_record_name", "record_name"]


class RegistrySpec(SpecStruct, frozen=True, kw_only=True):
    """A schema registry that speaks Confluent's API."""

    record: ClassVar = RecordName("transform-registry", "a schema registry")

    url: Annotated[
        str,
        Key(
            "Where the registry is.",
            TextShape(
                "a web address", r"https?://[^\s/@]+(?:/[^\s@]*)?", "write it as https://registry:8081"
            ),
            example="https://registry.example.org:8081",
        ),
    ]
    client: Annotated[
        dict[str, Setting],
        Key(
            "How to connect: `sasl.username` and `sasl.password` for basic authentication, `ssl.ca.location`,"
            " `ssl.certificate.location`, `ssl.key.location` and `ssl.key.password`. Secrets are"
            " `{env: VARIABLE}`, resolved where the job runs.",
            SettingsShape(client=True, expected="a map of settings"),
            example="{sasl.username: repl, sasl.password: {env: REGISTRY_PASSWORD}}",
        ),
    ] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RegistrySpec(url={self.url!r})"  # the client settings may hold a password


class SchemaSync(SpecStruct, frozen=True):
    """The schemas that follow a flow from the registry of its source to that of its destination."""

    record: ClassVar = RecordName("flow-schemas", "the schemas of a flow")

    sync: Annotated[
        bool,
        Key(
            "Whether schemas are registered at the destination. A record whose schema can't be registered"
            " waits, and is never copied without it.",
            example="true",
        ),
    ] = False
    subjects: Annotated[
        SubjectNames,
        Key(
            "How producers name subjects: by the topic, by topic and record, or by the record alone.",
            example="topic_name",
        ),
    ] = "topic_name"
    ids: Annotated[
        Literal["keep", "translate"],
        Key(
            "`keep` registers each schema with the id that it has at the source. `translate` takes the"
            " destination's ids, and writes them into the records.",
            example="keep",
        ),
    ] = "keep"
