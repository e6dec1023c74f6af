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
