Feature: What the tools say after an incident names the next step
  A screen that one reads at night says what is so, and which command comes next.

  Scenario: A mirror is deleted by hand, is repaired, and then the datacenter is lost
    Given the flow there copies orders and refunds from dc1 to dc2 as dc1.orders and dc1.refunds
    And the group billing read orders at dc1, one partition of which is idle
    When dc1.refunds is deleted at dc2 by hand
    And the engineer runs "repl apply"
    Then the exit code is 1
    And the command names "repl resume there --accept-loss" and does not say "Apply complete!"
    When the engineer runs "repl plan"
    Then the exit code is 0
    And the command names "repl resume there --accept-loss" and does not say "No changes."
    When the engineer runs "repl status"
    Then the command names "repl resume there --accept-loss" and does not say "nothing behind"
    And programs are told the same next step
    When the engineer runs "repl resume there --accept-loss"
    Then what is written to refunds from now on arrives at dc2
    And apply, plan and status say that nothing is left, and verify finds no difference
    When dc1 is lost
    Then status says that each partition was heard of seconds before, idle ones as well
    When the engineer runs "repl failover dc1"
    Then the command says that dc1 was heard of seconds before it was lost
    And the command tells billing to subscribe to dc1.orders at dc2
