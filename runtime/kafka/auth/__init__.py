"""This package does login and TLS for every connection of this product: SASL exchanges, tokens, TLS contexts.

The modules turn client settings and a broker's messages into what to send next, or a `LoginError`.
No module here opens a connection to a broker, knows Kafka's framing, or reads a topology.
"""
