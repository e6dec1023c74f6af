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

  @long
  Scenario: A setting that is not declared is not drift
    Given the topology was applied with the topic orders at dc1
    When an operator sets segment.ms of orders at dc1 to 86400000
    And repl drift is run
    Then the exit code is 0
    And the output ends with "No drift. The clusters are as they were applied."

  @long
  Scenario: A topic was deleted
    Given the topology was applied with the topic orders at dc1
    When an operator deletes orders at dc1
    And repl drift is run
    Then the exit code is 2
    And the output says "topic.dc1.orders was deleted"
    When the topology is planned
    Then the output says "topic.dc1.orders will be created (declared; it was deleted outside the topology)"

  @long
  Scenario: A setting is removed from the YAML
    Given the topology was applied with the topic orders at dc1
    When the team removes retention.ms of orders from the topology
    And the topology is planned
    Then the output says "~ retention.ms: 7d -> (default)  # no longer declared"
