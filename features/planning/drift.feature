Feature: Drift by hand
  What somebody changed at a cluster is found, told apart from what the team changed, and put right.

  Scenario: A setting was changed
    Given the topology was applied with the topic orders at dc1
    When somebody sets retention.ms of orders at dc1 to 86400000
    And drift is asked for
    Then the exit code is 2
    And the plan says "~ retention.ms: 7d -> 1d"
    And the plan ends with "Drift: 1 changed outside the topology."
    When the topology is planned
    Then the plan says "topic.dc1.orders will be updated in place (changed outside the topology)"
    And the plan says "~ retention.ms: 1d -> 7d"

  Scenario: A setting that nobody declared is nobody's drift
    Given the topology was applied with the topic orders at dc1
    When somebody sets segment.ms of orders at dc1 to 86400000
    And drift is asked for
    Then the exit code is 0
    And the plan ends with "No drift. The clusters are as they were applied."

  Scenario: A topic was deleted
    Given the topology was applied with the topic orders at dc1
    When somebody deletes orders at dc1
    And drift is asked for
    Then the exit code is 2
    And the plan says "topic.dc1.orders was deleted"
    When the topology is planned
    Then the plan says "topic.dc1.orders will be created (declared; it was deleted outside the topology)"

  Scenario: A setting leaves the YAML
    Given the topology was applied with the topic orders at dc1
    When the team takes retention.ms of orders out of the topology
    And the topology is planned
    Then the plan says "~ retention.ms: 7d -> (default)  # no longer declared"
