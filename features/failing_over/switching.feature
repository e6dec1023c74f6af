Feature: Planned switch-over
  The producers stop, the flow copies the remaining records, consumer groups follow, and then the flow ends. No record
  is lost. An out-of-date topology file can't undo the promotion.

  @long
  Scenario: Planned switch-over with zero loss
    Given 200 records are written to orders at dc1
    And the group billing has read 90 records of orders at dc1
    When the engineer runs repl promote dc1-to-dc2
    Then orders at dc2 holds the records of dc1, each once and in order
    And orders at dc2 holds 200 records
    And repl status shows dc1-to-dc2 as promoted
    And the plan shows no changes
    And the group billing resumes at dc2 with 0 records read again and 0 skipped
    When the engineer runs repl pause dc1-to-dc2
    Then the exit code is 3
    And the message says "from promoted a flow becomes active, over a promoted reverse flow"
    When the flow dc1-to-dc2 is changed to {state: active}
    And the engineer runs repl apply
    Then the exit code is 3
    And the message says "was promoted, and can't become active"
