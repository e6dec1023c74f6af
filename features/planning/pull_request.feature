Feature: A pull request in CI
  A pipeline decides by the exit code, and posts the plan as a comment.

  Scenario: A change that may be merged
    Given the topology was applied with the topic orders at dc1
    When the team declares payments at dc1 with 12 partitions
    And the pipeline plans with --detailed-exitcode, --markdown, --html, --out and --json
    Then the exit code is 2
    And the comment begins with "Plan: 1 to add, 0 to change, 0 to destroy."
    And the page shows the change of payments
    And the JSON creates payments
    And the saved plan shows the same again

  @long
  Scenario: An edit without effect
    Given the topology was applied with the topic orders at dc1
    When the pipeline plans with --detailed-exitcode, --markdown, --html, --out and --json
    Then the exit code is 0

  @long
  Scenario: A mistake in the YAML
    Given the topology was applied with the topic orders at dc1
    When the team writes partitons instead of partitions
    And the pipeline plans with --detailed-exitcode, --markdown, --html, --out and --json
    Then the exit code is 1
    And the comment begins with "No plan could be made: 1 error"
    And the JSON says that it is errored

  @long
  Scenario: A plan with --target
    Given the topology was applied with the topic orders at dc1
    When the team declares payments at dc1 with 12 partitions
    And the team declares visits at dc1 with 12 partitions
    And the topology is planned with the target visits
    Then the output ends with "Plan: 1 to add, 0 to change, 0 to destroy."
    And the output says "the plan is partial"
