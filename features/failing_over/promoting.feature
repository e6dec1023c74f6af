Feature: Some topics of a flow move, the others stay
  A team moves to the other datacenter with its topics; everybody else's go on being copied, by the same job.

  Scenario: Payments move to dc2
    Given orders, payments and refunds are copied from dc1 to dc2
    And 100 records are written to payments at dc1
    And billing read 40 of payments at dc1
    When somebody promotes payments
    Then the exit code is 0
    And the output says "promoted topics: payments"
    And payments at dc2 holds all 100, each once and in order
    And billing reads exactly the other 60 of payments at dc2
    And repl status says that payments is promoted
    And orders go on arriving at dc2
    When 20 records are written to payments at dc1
    And 10 records are written to payments at dc2
    Then orders go on arriving at dc2
    And of the 20 records nothing arrives in payments
    And repl salvage lists 20 records of payments
    When somebody applies the topology as it was before
    Then the exit code is 3
    And the message says "its topics payments were promoted, and can't become active"
    And the message says "over a promoted reverse flow (repl failback) or with a new restart_from"

  Scenario: Refunds move while one of their consumers is connected at dc2 already
    Given orders, payments and refunds are copied from dc1 to dc2
    And 60 records are written to refunds at dc1
    And billing read 30 of refunds at dc1
    And audit read 20 of refunds at dc1
    And the place of audit in refunds is known at dc2
    And audit reads 10 more of refunds at dc2 and stays connected
    When somebody promotes refunds
    Then the exit code is 0
    And repl status says that refunds is promoted
    And the place of audit in refunds at dc2 was not touched
    And billing reads exactly the other 30 of refunds at dc2
    And orders go on arriving at dc2

  Scenario: Ctrl-C in the middle of a failover
    Given orders, payments and refunds are copied from dc1 to dc2
    And 120 records are written to orders at dc1
    And billing read 50 of orders at dc1
    And the place of billing in orders is known at dc2
    When somebody runs repl failover dc1 and presses Ctrl-C once the job is updated
    Then the exit code is 130
    When somebody runs repl failover dc1
    Then the exit code is 0
    And repl status says that the flow is failed_over
    And orders at dc2 holds what dc1 has, each once and in order
    And billing reads exactly the rest of orders at dc2
    And no job is left
    When somebody runs repl failover dc1
    Then the output says "No changes."
