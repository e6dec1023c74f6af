Feature: Two datacenters replicate
  One apply starts the jobs. From then on they copy records, topics and settings without further commands.

  Background:
    Given the topology is applied and its jobs run

  Scenario: A new topic, and partitions that are added
    When an operator creates new-events at dc1 with 1 partition
    And 10 records are written to new-events at dc1
    Then new-events at dc2 holds the records of dc1, each once and in order
    When new-events at dc1 grows to 3 partitions
    And 30 records are written to new-events at dc1
    Then new-events at dc2 has 3 partitions
    And new-events at dc2 holds the records of dc1, each once and in order

  Scenario: A setting changes
    When an operator sets retention.ms of orders at dc1 to 86400000
    Then retention.ms of orders at dc2 is 86400000
