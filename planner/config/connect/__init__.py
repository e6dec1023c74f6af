"""The parts that the importers of MirrorMaker 2 and of Confluent Replicator share: both run on Kafka Connect.

Here are the keys of a file and the notes on them, Java's properties, and client settings in Java's names.
What only one of the two products knows belongs to `mm2` or `replicator`.
"""
