Feature: Drift by hand
  A change by hand at a cluster is found, distinguished from changes of the topology, and reverted.

  Scenario: A setting was changed
    Given the topology was applied with the topic orders at dc1
    When an operator sets retention.ms of orders at dc1 to 86400000
    And repl drift is run
    Then the exit code is 2
    And the output says "~ retention.ms: 7d -> 1d"
    And the output ends with "Drift: 1 changed outside the topology."
    When the topology is planned
    Then the output says "topic.dc1.orders will be updated in place (changed outside the topology)"
    And the output says "~ retention.ms: 1d -> 7d"
