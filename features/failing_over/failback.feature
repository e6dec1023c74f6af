Feature: Failback
  Datacenter dc1 is back. The failback copies only the records that were written at dc2 since the failover. Consumer
  groups continue at the exact record. Records that never left dc1 stay visible in repl salvage. A second failover
  works too.

  Scenario: Failback with only new data, and a second failover
    Given 200 records are written to orders at dc1
    And 20 records are written to payments at dc1
    And 20 records are written to invoices at dc1
    And the group billing has read 90 records of orders at dc1
    And the flows have copied everything
    And the engineer runs repl promote dc1-to-dc2 --topics payments
    When dc1 is lost
    And the engineer runs repl failover dc1
    Then the group billing resumes at dc2 with 0 records read again and 0 skipped
    When 50 records are written to dc1.orders at dc2
    And 5 records are written to dc1.payments at dc2
    And dc1.invoices at dc2 grows to 4 partitions
    And 6 records are written to dc1.invoices at dc2
    And dc1 is started again
    # A forgotten producer writes them.
    And 7 records are written to orders at dc1
    And an operator deletes invoices at dc1
    And an operator creates invoices at dc1 with 3 partitions
    And producers write 100 records/s to dc1.payments at dc2
    And the engineer runs repl failback dc1
    And the producers stop
    And the flows have copied everything
    Then orders at dc1 holds 257 records
    And payments at dc1 holds the records of dc2, each once and in order
    And invoices at dc1 holds the records of dc2, each once and in order
    And invoices at dc1 has 4 partitions
    When the engineer runs repl salvage dc1-to-dc2
    Then the exit code is 1
    And the output says "7 records"
    And the output says "invoices is not the topic that was copied: it was recreated"
    When 20 records are written to dc1.orders at dc2
    And the engineer runs repl failback dc1 --switch
    Then salvage lists 7 records of dc1-to-dc2
    And repl status shows dc1-to-dc2 as promoted
    And repl status shows dc1-to-dc2-back as promoted
    And the group billing resumes at dc1 with 0 records read again and 7 skipped
    When 30 records are written to orders at dc1
    And 4 records are written to invoices at dc1
    And the flows have copied everything
    Then invoices at dc1 holds the records of dc2, each once and in order
    And orders at dc1 holds 307 records
    And dc1.orders at dc2 holds 300 records, in the order of dc1
    When dc1 is lost
    And the engineer runs repl failover dc1
    And the topology is again as before the last command
    And the engineer runs repl apply
    Then the exit code is 3
    And the group billing resumes at dc2 with 0 records read again and 0 skipped
