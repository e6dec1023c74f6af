Feature: Salvage
  A failover reports how many records it loses. When the datacenter is back, repl salvage lists these records and
  copies each of them once.

  Scenario: A failover while there is lag
    Given orders are copied from dc1 to dc2
    And 100 records are written to orders at dc1 and copied to dc2
    And the flow is paused
    And 60 more records are written to orders at dc1
    And the job has seen the end offsets of dc1
    When the engineer replays the missing records
    Then the exit code is 3
    And the message says "flow.dc1-to-dc2 is paused: it copies what is left by itself"
    When dc1 is lost
    And the engineer runs repl failover dc1
    Then the exit code is 0
    And the failover reported at least 60 lost records
    When dc1 is started again
    Then repl salvage lists exactly the records that the failover reported as lost
    When the engineer replays the missing records into the topic recovered
    Then the exit code is 0
    And the output says "60 records replayed."
    And recovered at dc2 holds exactly these records, each once and in order
    And repl read names the origin of 60 records of recovered
    And repl locate names the origin of a replayed record of recovered
    And orders at dc2 holds 100 records
    When the engineer replays the missing records
    Then the exit code is 0
    And the output says "Nothing is left to replay from dc1 into dc2."
