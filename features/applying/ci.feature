Feature: Approved in CI
  A pull request shows a plan, a person approves it, and the pipeline applies exactly that plan.

  Background:
    Given a topology with the topic orders of 3 partitions at dc1

  Scenario: An object of the plan has changed since
    When the pipeline plans with --out plan.bin
    And an operator creates orders at dc1 with 1 partition
    And the pipeline applies plan.bin
    Then the exit code is 4
    And the message says "topic.dc1."
    And the message says "was created since the plan was made"
    And orders at dc1 has 1 partition

  Scenario: Other objects may change
    When the pipeline plans with --out plan.bin
    And an operator creates unrelated at dc1 with 1 partition
    And the pipeline applies plan.bin
    Then the exit code is 0
    And orders at dc1 has 3 partitions
