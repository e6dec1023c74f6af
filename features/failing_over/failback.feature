Feature: Failback
  Datacenter dc1 is back. The failback copies only the records that were written at dc2 since the failover. Consumer
  groups continue at the exact record. Records that never left dc1 stay visible in repl salvage. A second failover
  works too.

  Scenario: Failback with only new data, and a second failover
    Given orders, payments and invoices at dc1 are copied to dc2 with the prefix dc1.
    And 200 records are written to orders at dc1 and copied to dc2
    And 20 records are written to payments at dc1 and copied to dc2
    And 20 records are written to invoices at dc1 and copied to dc2
    And the group billing has read 90 records of orders at dc1, and its offsets are synced to dc2
    And the topic payments was promoted on its own
    When dc1 is lost
    And the engineer runs repl failover dc1
    Then billing reads at dc2 exactly the 110 records that it had not read
    When 50 records are written to dc1.orders at dc2
    And 5 records are written to dc1.payments at dc2
    And dc1.invoices gets a third partition at dc2
    And 6 records are written to dc1.invoices at dc2
    And dc1 is started again, and a forgotten producer writes 7 records to it
    And the topic invoices is deleted and created again at dc1
    And a producer keeps writing to dc1.payments at dc2
    And the engineer runs repl failback dc1
    And the producer stops
    Then the topology has a reverse flow, and the rest is unchanged
    And dc1 received the 50 records, and no others
    And payments at dc1 holds the same records as at dc2
    And invoices at dc1 holds the same records as at dc2
    And repl salvage lists the 7 records of the forgotten producer, and that invoices was created again
    When 20 records are written to dc1.orders at dc2
    And the engineer runs repl failback dc1 --switch
    Then repl salvage lists the 7 records of the forgotten producer
    And repl status shows payments as promoted
    And billing reads at dc1 exactly the 70 records that it had not read, and its offsets are synced to dc2
    When 30 records are written to orders at dc1
    And 4 records are written to invoices at dc1
    Then invoices at dc1 holds the same records as at dc2
    And both clusters hold the same 300 records of orders, each once and in order, and dc1 holds the 7 others
    When dc1 is lost
    And the engineer runs repl failover dc1
    And the engineer applies the topology file from before the failover
    Then the exit code is 3
    And billing reads at dc2 exactly the 30 records that it had not read
