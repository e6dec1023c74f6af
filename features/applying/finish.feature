Feature: Crashes, drift and concurrent applies
  The next apply finishes an interrupted one. Nothing is lost, and nothing is done twice.

  Scenario: Killed in the middle, finished by the next apply
    Given a topology with 40 topics of its own that are deleted when they are removed
    When an apply is killed after its first step
    And the pipeline applies the topology with --auto-approve
    Then the exit code is 0
    And all topics of its own exist at dc1
    When the pipeline plans with --detailed-exitcode
    Then the exit code is 0

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
