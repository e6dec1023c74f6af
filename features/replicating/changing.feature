Feature: Flows change while their job runs
  An edit of the topology is all it takes. What is not edited does not notice.

  Background:
    Given the topology runs

  Scenario: Pause and resume
    When somebody runs repl pause on there
    And 20 records are written to orders at dc1
    Then orders at dc2 gets none of them
    When somebody runs repl resume on there
    Then orders at dc2 holds those of dc1, each once and in order

  Scenario: A flow leaves and comes back
    Given 10 records were copied to orders at dc2
    When the flow there leaves the topology
    Then the output says "flow.there will be destroyed"
    And the output says "it resumes from its ledger"
    When 10 records are written to orders at dc1
    And the flow there comes back
    Then the output says "its ledger"
    And orders at dc2 holds those of dc1, each once and in order

  Scenario: A pipeline applies what was reviewed
    When the flow there gets rate_limit 50MB/s
    And the pipeline plans with --out there.bin
    And the pipeline applies there.bin
    Then the exit code is 0
    And the output says "Apply complete! Resources: 0 added, 2 changed, 0 destroyed."
    When 5 records are written to orders at dc1
    Then orders at dc2 holds those of dc1, each once and in order

  Scenario: A mirror that somebody deleted
    When the team of dc1 makes returns with 1 partition
    And 10 records are written to returns at dc1
    Then returns at dc2 holds those of dc1, each once and in order
    When somebody deletes returns at dc2
    Then the job says that returns is recreated
    And there is no returns at dc2
    When 5 records are written to returns at dc1
    And somebody accepts what there lost
    Then the message says "continues behind the lost records: returns-0 (recreated)"
    And returns at dc2 holds the last 5 of dc1
