Feature: What verify, read and locate say after incidents is true
  Salvage replays records, a failback turns the direction, a switch turns it again. Each record is still known by the
  cluster and offset where it was born, replayed records are compared with their originals, and nothing equal is called
  different.

  Scenario: Failover with records left behind, replay, failback, switch, and a second failover
    Given orders at dc1 are copied to dc2 as dc1.orders
    And 20 records are written to orders at dc1 and are at dc2
    And the flow is paused
    And 10 records are written to orders at dc1
    When dc1 is lost
    And somebody runs repl failover dc1
    And 3 records are written to partition 0 of dc1.orders at dc2
    And dc1 is back
    And somebody runs repl salvage there --replay
    And 4 records are written to dc1.orders at dc2
    Then repl verify there compares 20 records, and 10 that were replayed
    And repl read names the true origin of each record at dc2
    When somebody runs repl failback dc1
    Then repl verify there-back compares 27 records, and 0 that were replayed
    And repl read names the true origin of each record at both sides
    When somebody runs repl failback dc1 --switch
    And 6 records are written to orders at dc1
    Then orders are 43 records at dc2
    And repl verify there compares 33 records, and 10 that were replayed
    And repl verify there-back compares 27 records, and 0 that were replayed
    And repl read names the true origin of each record at both sides
    And repl locate finds records of every kind at the other side, both ways
    And repl locate there suggests --reverse for a topic of dc2
    When a client writes a record with a forged header to dc1.orders at dc2
    And 2 records are written to orders at dc1
    Then orders are 46 records at dc2
    And repl verify there compares 35 records, and 10 that were replayed, and finds the forged one alone
    When dc1 is lost
    And somebody runs repl failover dc1
    And 5 records are written to dc1.orders at dc2
    And dc1 is back
    Then repl verify there compares 35 records, and 10 that were replayed, and finds the forged one alone
    And repl read names the true origin of each record at both sides
