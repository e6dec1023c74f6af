Feature: Failover
  Datacenter dc1 is lost. Consumer groups continue at dc2 at the exact record where they stopped. The topology records
  the failover.

  Scenario: The primary is lost while consumers read
    Given 200 records are written to orders at dc1
    And the group billing has read 90 records of orders at dc1
    And the group audit has read 60 records of orders at dc1
    And the flows have copied everything
    And a consumer of the group audit reads 20 records at dc2 and stays connected
    When the engineer runs repl failover dc1 --rehearse
    Then the output says "Nothing was changed."
    And the plan shows no changes
    When dc1 is lost
    And the engineer runs repl promote dc1-to-dc2
    Then the exit code is 3
    And the message says "dc1 does not answer: the remaining records can't be copied"
    And the message says "or give it up: repl failover dc1"
    When the engineer runs repl failover dc1
    Then the output says "at least 0 records"
    And the RPO is at most 0 records
    And repl status shows dc1-to-dc2 as failed_over
    And the plan shows no changes
    And orders at dc2 holds 200 records
    And the group billing resumes at dc2 with 0 records read again and 0 skipped
    When the consumers of the group audit leave
    Then the group audit resumes at dc2 with 0 records read again and 0 skipped

  @long
  Scenario: The primary is lost together with the machine of the job
    Given 200 records are written to orders at dc1
    And the group billing has read 90 records of orders at dc1
    And the flows have copied everything
    When the machine of the jobs is lost
    And dc1 is lost
    And the engineer runs repl failover dc1
    Then the RPO is at most 0 records
    And repl status shows dc1-to-dc2 as failed_over
    And no job is running
    And orders at dc2 holds 200 records
    And the group billing resumes at dc2 with 0 records read again and 0 skipped
