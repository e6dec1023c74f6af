Feature: Every command names the next step after an incident
  plan, apply and status show the same state, and the command that comes next.

  Scenario: A mirror is deleted by hand, is repaired, and then the datacenter is lost
    Given the flow dc1-to-dc2 copies orders and refunds from dc1 to dc2 as dc1.orders and dc1.refunds
    And the group billing has read orders at dc1, and one partition of orders is idle
    When dc1.refunds is deleted at dc2 by hand
    And the engineer runs "repl apply"
    Then the exit code is 1
    And the command names "repl resume dc1-to-dc2 --accept-loss" and does not say "Apply complete!"
    When the engineer runs "repl plan"
    Then the exit code is 0
    And the command names "repl resume dc1-to-dc2 --accept-loss" and does not say "No changes."
    When the engineer runs "repl status"
    Then the command names "repl resume dc1-to-dc2 --accept-loss" and does not say "nothing behind"
    And the JSON output names the same next step
    When the engineer runs "repl resume dc1-to-dc2 --accept-loss"
    Then records that are written to refunds from now on arrive at dc2
    And apply, plan and status say that nothing is left, and verify finds no difference
    When dc1 is lost
    Then status says that every partition was seen seconds before, idle ones too
    When the engineer runs "repl failover dc1"
    Then the command says that dc1 was last seen seconds before it was lost
    And the command tells billing to subscribe to dc1.orders at dc2
