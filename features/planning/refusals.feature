Feature: Refused plans
  Each refusal comes before anything is changed, and names its reason and a solution.

  Scenario: The wrong cluster
    Given the topology was applied with the topic orders at dc1
    When dc1 is pinned to the id another-cluster
    And the topology is planned
    Then the exit code is 3
    And the message says "pinned"
