Feature: Failover
  Datacenter dc1 is lost. Consumer groups continue at dc2 at the exact record where they stopped. The topology records
  the failover.

  Scenario: The primary is lost while consumers read
    Given orders are copied from dc1 to dc2
    And 200 records are written to orders at dc1
    And the group billing has read 90 of them at dc1
    And the group audit has read 60 of them at dc1
    And the groups' offsets are synced to dc2
    And the group audit reads at dc2 and stays connected
    When the engineer rehearses the failover of dc1
    Then the output says "Nothing was changed."
    And the topology is unchanged
    When dc1 is lost
    And the engineer runs repl promote dc1-to-dc2
    Then the exit code is 3
    And the message says "dc1 does not answer: the remaining records can't be copied"
    And the message says "or give it up: repl failover dc1"
    When the engineer runs repl failover dc1
    Then the exit code is 0
    And the output says "at least 0 records"
    And repl status shows the flow as failed_over
    And the group billing reads exactly the other 110 records at dc2
    And the offsets of audit at dc2 are unchanged

  Scenario: The primary is lost together with the machine of the job
    Given orders are copied from dc1 to dc2
    And 200 records are written to orders at dc1
    And the group billing has read 90 of them at dc1
    And the groups' offsets are synced to dc2
    When the machine of the job is lost
    And dc1 is lost
    And the engineer runs repl failover dc1
    Then the exit code is 0
    And repl status shows the flow as failed_over
    And no job is running
    And the group billing reads exactly the other 110 records at dc2
