Feature: Promotion of single topics
  A team moves to dc2 with its topics. The same job continues to copy the other topics.

  Scenario: Payments move to dc2
    Given orders, payments and refunds are copied from dc1 to dc2
    And 100 records are written to payments at dc1
    And the group billing has read 40 records of payments at dc1
    When the engineer promotes payments
    Then the exit code is 0
    And the output says "promoted topics: payments"
    And payments at dc2 holds all 100, each once and in order
    And the group billing reads exactly the other 60 records of payments at dc2
    And repl status shows payments as promoted
    And new records of orders arrive at dc2
    When 20 records are written to payments at dc1
    And 10 records are written to payments at dc2
    Then new records of orders arrive at dc2
    And none of the 20 records of dc1 arrives in payments at dc2
    And repl salvage lists 20 records of payments
    When the engineer applies the topology file from before
    Then the exit code is 3
    And the message says "its topics payments were promoted, and can't become active"
    And the message says "over a promoted reverse flow (repl failback) or with a new restart_from"

  Scenario: Ctrl-C in the middle of a failover
    Given orders, payments and refunds are copied from dc1 to dc2
    And 120 records are written to orders at dc1
    And the group billing has read 50 records of orders at dc1
    And the offsets of billing in orders are synced to dc2
    When the engineer runs repl failover dc1 and presses Ctrl-C while the job is updated
    Then the exit code is 130
    When the engineer runs repl failover dc1
    Then the exit code is 0
    And repl status shows the flow as failed_over
    And orders at dc2 holds what dc1 has, each once and in order
    And the group billing reads exactly the remaining records of orders at dc2
    And no job is running
    When the engineer runs repl failover dc1
    Then the output says "No changes."
