"""This package decodes values of Avro and Protobuf in the slot, and changes fields in their bytes.

Spark reads the decoded values as JSON. Nothing here knows Spark or a batch of records.
"""
