Feature: A datacenter is lost
  Consumers go on at the other one where they left off, at the exact record, and the topology says what happened.

  Scenario: The primary is lost while consumers read
    Given orders are copied from dc1 to dc2
    And 200 records are written to orders at dc1
    And billing read 90 of them at dc1
    And audit read 60 of them at dc1
    And their places are known at dc2
    And audit reads at dc2 and stays connected
    When somebody rehearses the failover of dc1
    Then the output says "Nothing was changed."
    And the topology is as it was
    When dc1 is lost
    And somebody runs repl promote there
    Then the exit code is 3
    And the message says "dc1 does not answer: the remaining records can't be copied"
    And the message says "or give it up: repl failover dc1"
    When somebody runs repl failover dc1
    Then the exit code is 0
    And the output says "at least 0 records"
    And repl status says that there is failed_over
    And billing reads exactly the other 110 at dc2
    And the place of audit at dc2 was not touched

  Scenario: The primary is lost together with the machine of the job
    Given orders are copied from dc1 to dc2
    And 200 records are written to orders at dc1
    And billing read 90 of them at dc1
    And their places are known at dc2
    When the machine of the job is lost
    And dc1 is lost
    And somebody runs repl failover dc1
    Then the exit code is 0
    And repl status says that there is failed_over
    And no job is left
    And billing reads exactly the other 110 at dc2
