"""Pure: expands a topology over the live topics into the desired state of the clusters.

It also says what must be read for that, and checks the result (lints). It holds no Kafka client and no YAML.
"""
