Feature: What a lost datacenter still held comes over after all
  A failover says how many records it costs. Once the datacenter is back they can be listed, and copied, each once.

  Scenario: A failover while there is lag
    Given orders are copied from dc1 to dc2
    And 100 records are written to orders at dc1, and arrived
    And the flow is paused
    And 60 more records are written to orders at dc1
    And the job saw where dc1 ends
    When somebody replays what is left
    Then the exit code is 3
    And the message says "flow.there is paused: it copies what is left by itself"
    When dc1 is lost
    And somebody runs repl failover dc1
    Then the exit code is 0
    And the failover cost at least 60 records
    When dc1 is back
    Then salvage lists exactly the records that the failover cost
    When somebody replays what is left into aside
    Then the exit code is 0
    And the output says "60 records replayed."
    And aside at dc2 holds exactly those, each once and in order
    And repl read says of 60 records of aside where they came from
    And repl locate says of a record of aside that it was replayed, and where from
    And orders at dc2 holds 100 records
    When somebody replays what is left
    Then the exit code is 0
    And the output says "Nothing is left to replay from dc1 into dc2."
