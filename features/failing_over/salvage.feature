Feature: Salvage
  A failover reports how many records it loses. When the datacenter is back, repl salvage lists these records and
  copies each of them once.

  @long
  Scenario: A failover while there is lag
    Given 100 records are written to orders at dc1
    And the flows have copied everything
    And the engineer runs repl pause dc1-to-dc2
    And 60 records are written to orders at dc1
    And the job has seen the end offsets of dc1
    When the engineer runs repl salvage dc1-to-dc2 --replay
    Then the exit code is 3
    And the message says "flow.dc1-to-dc2 is paused: it copies what is left by itself"
    When dc1 is lost
    And the engineer runs repl failover dc1
    Then the output says "at least 60 records"
    And the RPO is at most 60 records
    When dc1 is started again
    Then salvage lists 60 records of dc1-to-dc2
    When the engineer runs repl salvage dc1-to-dc2 --replay --to recovered
    Then the output says "60 records replayed."
    And recovered at dc2 holds exactly these records, each once and in order
    And repl read names the origin of each record of recovered
    And repl locate names the origin of a replayed record of recovered
    And orders at dc2 holds 100 records
    When the engineer runs repl salvage dc1-to-dc2 --replay
    Then the output says "Nothing is left to replay from dc1 into dc2."
