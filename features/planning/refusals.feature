Feature: Refused plans
  Each refusal comes before anything is changed, and names its reason and a solution.

  Scenario: The wrong cluster
    Given the topology was applied with the topic orders at dc1
    When dc1 is pinned to the id another-cluster
    And the topology is planned
    Then the exit code is 3
    And the message says "pinned"

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
