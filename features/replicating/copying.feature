Feature: Two datacenters replicate
  One apply starts the jobs. From then on they copy records, topics and settings without further commands.

  Background:
    Given the topology is applied and its jobs run

  Scenario: A topic is copied to the other datacenter
    When 20 records are written to orders at dc1
    Then orders at dc2 holds the records of dc1, each once and in order

  Scenario: One topic, written in both datacenters
    When 20 records are written to catalog at dc1
    And 20 records are written to catalog at dc2
    Then catalog holds the same 40 records at dc1 and dc2
    And no record is copied back

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

  Scenario: Nothing is left to plan
    When the topology is planned
    Then the exit code is 0
    And the output ends with "No changes. The clusters match the topology."
