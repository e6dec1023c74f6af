"""Records of every kind that a topic may hold, from several producers, in a seeded order."""

import random
import uuid
from typing import Any

from tests.records import settled
from tests.runtime.slot.world import Side

LONG_AGO = 1_500_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def rows(random_: random.Random, count: int, partitions: int) -> list[dict[str, Any]]:
    """Numbered, so that a reader can tell each; null and empty keys and values, headers, old timestamps."""
    return [
        {
            "key": random_.choice([b"k%d" % one, b"", None]),
            "value": random_.choice([b"v%d" % one + random_.randbytes(random_.randrange(200)), b"", None]),
            "headers": [("n", str(one).encode())]
            + [(f"h{each}", random_.choice([b"", None, b"x"])) for each in range(random_.randrange(4))],
            "timestamp": LONG_AGO + random_.randrange(1_000_000),
            "partition": random_.randrange(partitions),
        }
        for one in range(count)
    ]


def mixed(side: Side, topic: str, partitions: int = 1, *, seed: int = 1, count: int = 600) -> None:
    """Plain, idempotent and transactional producers; a third of the transactions is aborted. All are ended
    when it returns."""
    random_ = random.Random(seed)
    producers = [side.producer(compression_type=codec, linger_ms=2) for codec in CODECS]
    producers.append(side.producer(enable_idempotence=True))
    transactional = [
        side.producer(transactional_id=f"app-{uuid.uuid4().hex}", compression_type=random_.choice(CODECS))
        for _ in range(3)
    ]
    for producer in transactional:
        producer.init_transactions(60)
    left = rows(random_, count, partitions)
    while left:
        some, left = left[: random_.randrange(1, 40)], left[40:]
        if random_.random() < 0.5:
            producer = random_.choice(producers)
            _produce(producer, topic, some)
            producer.flush(60)
            continue
        producer = random_.choice(transactional)
        producer.begin_transaction()
        _produce(producer, topic, some)
        if random_.random() < 0.33:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    settled(side.client, topic)


def _produce(producer: Any, topic: str, some: list[dict[str, Any]]) -> None:
    for row in some:
        producer.produce(topic, **row)
