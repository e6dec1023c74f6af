Feature: An on-call engineer's night
  Datacenter dc1 is lost while records are on their way. The engineer fails over, replays what was left behind, fails
  back, changes settings and repairs a mirror. At every step, what the commands print is compared with the records.

  Scenario: dc1 is lost, failed back to, and lost again
    Given the flow orders-to-dc2 copies orders and refunds from dc1 to dc2 as dc1.orders and dc1.refunds
    And 200 records are written to orders at dc1, 20 to refunds, and all arrive at dc2
    And the consumer group billing has read 120 records of orders at dc1, and dc2 knows its offsets

    And the live page is open, and says of dc1 "safe, nothing would be lost"
    And the live page shows the plan, the history, the flow, and billing in a search
    And the flow is paused while 40 records are written to orders at dc1
    When dc1 is lost
    Then the live page says of dc1 "would lose at least 40 records"
    And the live page says "Cluster dc1 does not answer"
    When the engineer runs "repl failover dc1"
    Then the command tells billing to subscribe to dc1.orders at dc2
    And the command says that at least 40 records are missing, as of the last minute
    And billing reads at dc2 exactly the 80 records that it had not read and that arrived

    When 30 records are written to dc1.orders at dc2
    Then the live page says of dc1 "nothing is left to fail over (1 failed over)"
    And the live page shows the offsets of billing at both sides, until Ctrl-C closes it
    When dc1 is started again
    And the engineer runs "repl salvage orders-to-dc2"
    Then the command lists 40 records
    When the engineer runs "repl salvage orders-to-dc2 --replay"
    Then the command says "40 records replayed."
    And repl locate says that a record left behind was replayed by salvage
    And repl read names the true origin of every record at dc2

    When 10 records are written to dc1.orders at dc2
    And the engineer runs "repl failback dc1"
    Then repl read names the true origin of every record at dc1
    When 15 records are written to dc1.orders at dc2
    And the engineer runs "repl failback dc1 --switch"
    Then the command warns that billing has not read up to 40 replayed records of dc1.orders at dc2
    And the limits of orders at dc1 are what they were before the failback
    When 25 records are written to orders at dc1
    Then both clusters hold the same 320 records of orders, and repl read names the true origin of each

    And repl verify finds no difference, and counts 40 replayed records
    When the engineer removes retention.bytes of orders from the topology
    Then repl plan shows retention.bytes of orders leaving at dc1 and at dc2
    When the engineer runs "repl apply"
    Then repl plan says "No changes."
    When dc1.refunds is deleted at dc2 by hand
    And the engineer runs "repl apply"
    Then the exit code is 1
    And apply and status name "repl resume orders-to-dc2 --accept-loss" as the next command

    When the engineer runs "repl resume orders-to-dc2 --accept-loss"
    And 5 records are written to refunds at dc1
    Then dc1.refunds at dc2 holds exactly the last 5 records of refunds
    And repl plan says "No changes."
    And repl verify finds no difference, and counts 40 replayed records
    When dc1 is lost
    And the engineer runs "repl failover dc1"
    Then billing reads at dc2 exactly the records that it had not read
    And repl read names the true origin of every record at dc2
