Feature: verify, read and locate after incidents
  Salvage replays records, a failback reverses the direction, and a switch reverses it again. Each record is still
  known by the cluster and the offset where it was produced. Replayed records are compared with their originals. Equal
  records are never reported as different.

  Scenario: Failover with records left behind, replay, failback, switch, and a second failover
    Given orders at dc1 are copied to dc2 as dc1.orders
    And 20 records are written to orders at dc1 and copied to dc2
    And the flow is paused
    And 10 records are written to orders at dc1
    When dc1 is lost
    And the engineer runs repl failover dc1
    And 3 records are written to partition 0 of dc1.orders at dc2
    And dc1 is started again
    And the engineer runs repl salvage dc1-to-dc2 --replay
    And 4 records are written to dc1.orders at dc2
    Then repl verify dc1-to-dc2 compares 20 records, and 10 replayed records
    And repl read names the true origin of each record at dc2
    When the engineer runs repl failback dc1
    Then repl verify dc1-to-dc2-back compares 27 records, and 0 replayed records
    And repl read names the true origin of each record at both clusters
    When the engineer runs repl failback dc1 --switch
    And 6 records are written to orders at dc1
    Then dc1.orders at dc2 holds 43 records
    And repl verify dc1-to-dc2 compares 33 records, and 10 replayed records
    And repl verify dc1-to-dc2-back compares 27 records, and 0 replayed records
    And repl read names the true origin of each record at both clusters
    And repl locate finds records of every kind at the other cluster, in both directions
    And repl locate dc1-to-dc2 suggests --reverse for a topic of dc2
    When a client writes a record with a forged header to dc1.orders at dc2
    And 2 records are written to orders at dc1
    Then dc1.orders at dc2 holds 46 records
    And repl verify dc1-to-dc2 compares 35 records, and 10 replayed records, and reports only the forged record
    When dc1 is lost
    And the engineer runs repl failover dc1
    And 5 records are written to dc1.orders at dc2
    And dc1 is started again
    Then repl verify dc1-to-dc2 compares 35 records, and 10 replayed records, and reports only the forged record
    And repl read names the true origin of each record at both clusters
