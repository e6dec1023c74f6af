"""This module makes ids for topics at brokers that have none (Kafka before 2.8), and compares ids.

It is pure. A name id follows from the topic's name, so it stays the same when the topic is deleted and
created again. It takes the place of Kafka's id in the runtime and in its records. Two different ids tell of
a recreated topic only where both come from Kafka: a cluster that was upgraded gives a topic its first id.
"""

import hashlib

NO_TOPIC_ID = bytes(16)
_PREFIX = b"byname"


def name_id(topic: str) -> bytes:
    """Returns the name id of a topic."""
    digest = hashlib.sha256(topic.encode()).digest()
    return _PREFIX + digest[: len(NO_TOPIC_ID) - len(_PREFIX)]


def is_from_kafka(topic_id: bytes) -> bool:
    """Returns whether the id was given by Kafka, so that a recreated topic has another one."""
    return topic_id != NO_TOPIC_ID and not topic_id.startswith(_PREFIX)


def is_other_topic(known: bytes, found: bytes) -> bool:
    """Returns whether both ids come from Kafka and differ: the topic was deleted and created again."""
    return known != found and is_from_kafka(known) and is_from_kafka(found)


def newest_id(known: bytes, found: bytes) -> bytes:
    """Returns the id to go on with: the one from Kafka, if either is."""
    return found if is_from_kafka(found) and not is_from_kafka(known) else known
