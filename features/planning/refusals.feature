Feature: Refused plans
  Each refusal comes before anything is changed, and names its reason and a solution.

  @long
  Scenario: Fewer partitions
    Given the topology was applied with the topic orders at dc1
    When the team declares orders at dc1 with 1 partition
    And the topology is planned
    Then the exit code is 1
    And the message says "partitions only grow: there are 3, 1 are declared"
    And orders at dc1 has 3 partitions

  @long
  Scenario: More partitions
    Given the topology was applied with the topic orders at dc1
    When the team declares orders at dc1 with 6 partitions
    And the topology is planned
    Then the exit code is 0
    And the output says "~ partitions: 3 -> 6"
    And the output says "more partitions move keys"

  Scenario: The wrong cluster
    Given the topology was applied with the topic orders at dc1
    When dc1 is pinned to the id another-cluster
    And the topology is planned
    Then the exit code is 3
    And the message says "pinned"

  @long
  Scenario: A topic that another topology owns
    Given the topology was applied with the topic orders at dc1
    When another team declares orders at dc1 in a topology of its own
    And the other topology is planned
    Then the exit code is 3
    And the message says "owned by the topology"

  @long
  Scenario: A datacenter that does not answer
    Given the topology was applied with the topic orders at dc1
    When the team declares a topic at dc3, where nothing answers
    And the team declares payments at dc1 with 2 partitions
    And the topology is planned
    Then the exit code is 1
    And the output says "(unknown: dc3 unreachable)"
    And the output says "topic.dc1.payments will be created"
    And the output says "This plan is not complete: dc3 could not be read."
