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
