"""Reading a broker over a plain socket, so that what goes wrong can be told exactly and soon.

librdkafka's DescribeConfigs can't ask for single keys and asks for every synonym besides: for 9,000 topics
3.8 s and 3.1 s of CPU, against 0.9 and 0.5 here for all keys and 0.3 and 0.1 for three. The messages are
kafka-python's generated protocol; only the one large answer (configs) is decoded by hand.
"""

from planner.observe.wire.connection import Connection
from planner.observe.wire.failure import Closed, NoAnswer, NoConnection, Refused, WireFailure

__all__ = ["Closed", "Connection", "NoAnswer", "NoConnection", "Refused", "WireFailure"]
