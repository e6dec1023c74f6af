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

  Scenario: An apply without a terminal and without --auto-approve
    When the pipeline applies the topology without --auto-approve
    Then the exit code is 1
    And the message says "--auto-approve"
    And orders does not exist at dc1

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

  Scenario: The history shows the user of each apply
    When the pipeline applies the topology with --auto-approve
    And the engineer runs repl history
    Then the exit code is 0
    And the output says "bdd@"
    And the output says "2 done"
