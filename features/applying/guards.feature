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

  @long
  Scenario: A topic that another topology owns
    Given a topology with the topic orders of 3 partitions at dc1
    And the topology was applied
    And another topology declares orders at dc1 with 6 partitions
    When the pipeline applies the other topology with --auto-approve
    Then the exit code is 3
    And the message says "owned by the topology"
    And orders at dc1 has 3 partitions

  @long
  Scenario: A topic that is removed from the topology and kept
    Given a topology with the topic orders of 3 partitions at dc1
    And the topology was applied
    When orders is removed from the topology
    And the pipeline applies the topology with --auto-approve
    Then the exit code is 0
    And orders at dc1 has 3 partitions
    And the registry of dc1 does not know orders

  @long
  Scenario: A topic with on_remove: delete is deleted
    Given a topology with the topic orders of 3 partitions at dc1
    And orders is declared with "on_remove: delete"
    And the topology was applied
    When orders is removed from the topology
    And the pipeline applies the topology with --auto-approve
    Then the exit code is 0
    And the output ends with "1 destroyed."
    And orders does not exist at dc1
