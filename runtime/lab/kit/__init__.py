"""This package provides what runs Kafka: Java, the jars, and Kafka's own tools."""
