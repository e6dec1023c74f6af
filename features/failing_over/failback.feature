Feature: Home again
  The lost datacenter is back. Only what was written at the other side since then comes home, groups go on at the exact
  record, what never left the old primary stays visible, and everything works a second time.

  Scenario: Failback with only new data, and a second failover
    Given orders, payments and invoices at dc1 are copied to dc2 as dc1.orders and so on
    And 200 records are written to orders at dc1 and are at dc2
    And 20 records are written to payments at dc1 and are at dc2
    And 20 records are written to invoices at dc1 and are at dc2
    And billing read 90 of orders at dc1, and dc2 knows
    And payments were promoted on their own
    When dc1 is lost
    And somebody runs repl failover dc1
    Then billing reads at dc2 exactly the 110 that it had not read
    When 50 records are written to dc1.orders at dc2
    And 5 records are written to dc1.payments at dc2
    And dc1.invoices get a third partition at dc2
    And 6 records are written to dc1.invoices at dc2
    And dc1 is back, where a forgotten producer writes 7 records
    And invoices were deleted and made anew at dc1
    And somebody runs repl failback dc1
    Then the topology has a way home, and all that stood there before
    And 50 records came home, and nothing else
    And payments at dc1 are those of dc2
    And invoices at dc1 are those of dc2
    And repl salvage lists the 7 of the forgotten producer, and invoices as made anew
    When 20 records are written to dc1.orders at dc2
    And somebody runs repl failback dc1 --switch
    Then repl salvage lists the 7 records of the forgotten producer
    And repl status says that payments are still promoted
    And billing reads at dc1 exactly the 70 that it had not read, and dc2 knows
    When 30 records are written to orders at dc1
    And 4 records are written to invoices at dc1
    Then invoices at dc1 are those of dc2
    And both sides hold the same 300 records, each once and in order, and dc1 the 7
    When dc1 is lost
    And somebody runs repl failover dc1
    And somebody applies the topology as it was before that
    Then the exit code is 3
    And billing reads at dc2 exactly the 30 that it had not read
