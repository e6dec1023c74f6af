Feature: Concurrent applies and rollback
  One engineer applies at a time, and what an apply did can be taken back.

  Scenario: Two engineers at once
    Given a topology with the topic orders of 3 partitions at dc1
    And another engineer is applying to dc1
    When the pipeline applies the topology with --auto-approve and --lock-timeout 1s
    Then the exit code is 1
    And the message says "is being applied to by"
    And the message says "--lock-timeout"
    And orders does not exist at dc1

  @long
  Scenario: An apply is rolled back
    Given a topology with the topic orders of 3 partitions at dc1
    And orders is declared with "config: {retention.ms: 1d}"
    And the topology was applied
    And orders is declared with "config: {retention.ms: 2d}"
    And the topology was applied
    When the pipeline plans a rollback of the last apply with --out plan.bin
    And the pipeline applies plan.bin
    Then the exit code is 0
    And retention.ms of orders at dc1 is 86400000
