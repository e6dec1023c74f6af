Feature: A team adds a topic
  A plan shows what an apply would do, and changes nothing.

  Scenario: One more topic
    Given the topology was applied with the topic orders at dc1
    When the team declares payments at dc1 with 12 partitions
    And the topology is planned
    Then the exit code is 0
    And the output says "topic.dc1.payments will be created (declared)"
    And the output says "+ partitions: 12"
    And the output ends with "Plan: 1 to add, 0 to change, 0 to destroy."
    And payments does not exist at dc1

  @long
  Scenario: A flow creates its topics at the other datacenter
    Given the topology was applied with the topic orders at dc1
    When the team adds the flow dc1-to-dc2 of orders
    And the topology is planned
    Then the output says "topic.dc2.orders will be created (mirrored by flow.dc1-to-dc2)"
    And the output says "flow.dc1-to-dc2 will be created (copied by job.dc2)"
    And the output says "job.dc2 will be created (copies flow.dc1-to-dc2)"

  @long
  Scenario: Nothing to do
    Given the topology was applied with the topic orders at dc1
    When the topology is planned
    Then the exit code is 0
    And the output ends with "No changes. The clusters match the topology."

  @long
  Scenario: A topic that exists already
    Given orders exists at dc1 with 3 partitions
    When the team declares orders at dc1 with 3 partitions
    And the topology is planned
    Then the output says "topic.dc1.orders exists, will be managed"
    And the output ends with "Plan: 0 to add, 0 to change, 0 to destroy, 1 to adopt."

  @long
  Scenario: A setting that the broker does not know
    Given the topology was applied with the topic orders at dc1
    When the team declares payments at dc1 with the setting no.such.key
    And the topology is planned
    Then the exit code is 1
    And the message says "there is no topic setting"
    And payments does not exist at dc1
