Feature: Approved in CI
  A pull request shows a plan, a person approves it, and the pipeline applies exactly that plan.

  Background:
    Given a topology with the topic orders of 3 partitions at dc1

  Scenario: The saved plan is applied, and then there is nothing left to do
    When the pipeline plans with --detailed-exitcode --out plan.bin
    Then the exit code is 2
    When the pipeline applies plan.bin
    Then the exit code is 0
    And the output ends with "Apply complete! Resources: 1 added, 0 changed, 0 destroyed."
    And orders at dc1 has 3 partitions
    When the pipeline plans with --detailed-exitcode
    Then the exit code is 0
    And the output says "No changes. The clusters match the topology."

  Scenario: Nobody is there to approve
    When the pipeline applies the topology without --auto-approve
    Then the exit code is 1
    And the errors say "--auto-approve"
    And orders does not exist at dc1

  Scenario: What the plan touches has moved since
    When the pipeline plans with --out plan.bin
    And somebody creates orders at dc1 with 1 partition
    And the pipeline applies plan.bin
    Then the exit code is 4
    And the errors say "topic.dc1."
    And the errors say "was created since the plan was made"
    And orders at dc1 has 1 partition

  Scenario: What the plan does not touch may move
    When the pipeline plans with --out plan.bin
    And somebody creates unrelated at dc1 with 1 partition
    And the pipeline applies plan.bin
    Then the exit code is 0
    And orders at dc1 has 3 partitions

  Scenario: The history tells who applied what
    When the pipeline applies the topology with --auto-approve
    And somebody asks for the history
    Then the exit code is 0
    And the output says "bdd@"
    And the output says "2 done"
