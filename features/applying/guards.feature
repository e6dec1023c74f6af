Feature: Guards
  A plan that would lose data is refused. The refusal names the guard and a solution.

  Scenario: A protected topic whose block was removed
    Given a topology with the topic orders of 3 partitions at dc1
    And orders is declared with "protect: true, on_remove: delete"
    And the topology was applied
    When orders is removed from the topology
    And the pipeline applies the topology with --auto-approve
    Then the exit code is 3
    And the message says "protected when it was applied last"
    And orders at dc1 has 3 partitions

  Scenario: More deletes than the policy allows
    Given a topology with 3 topics of its own that are deleted when they are removed
    And the policy max_deletes is 2
    And the topology was applied
    When all topics of its own are removed from the topology
    And the pipeline applies the topology with --auto-approve
    Then the exit code is 3
    And the message says "policies.max_deletes is 2"
