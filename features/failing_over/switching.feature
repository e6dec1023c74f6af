Feature: Planned switch-over
  The producers stop, the flow copies the remaining records, consumer groups follow, and then the flow ends. No record
  is lost. An out-of-date topology file can't undo the promotion.

  Scenario: Planned switch-over with zero loss
    Given orders are copied from dc1 to dc2
    And 200 records are written to orders at dc1
    And the group billing has read 90 of them at dc1
    When the engineer runs repl promote dc1-to-dc2
    Then the exit code is 0
    And orders at dc2 holds all 200, each once and in order
    And repl status shows the flow as promoted
    And the group billing reads exactly the other 110 records at dc2
    When the engineer runs repl pause dc1-to-dc2
    Then the exit code is 3
    And the message says "from promoted a flow becomes active, over a promoted reverse flow"
    When the engineer applies the topology file from before
    Then the exit code is 3
    And the message says "was promoted, and can't become active"
