Feature: Flows change while their job runs
  An edit of the topology and an apply change a flow. Other flows are not interrupted.

  Background:
    Given the topology is applied and its jobs run

  Scenario: Pause and resume
    When the engineer runs repl pause on dc1-to-dc2
    And 20 records are written to orders at dc1
    Then orders at dc2 gets none of them
    When the engineer runs repl resume on dc1-to-dc2
    Then orders at dc2 holds the records of dc1, each once and in order

  Scenario: A flow is removed and added again
    Given 10 records were copied to orders at dc2
    When the flow dc1-to-dc2 is removed from the topology
    Then the output says "flow.dc1-to-dc2 will be destroyed"
    And the output says "it resumes from its ledger"
    When 10 records are written to orders at dc1
    And the flow dc1-to-dc2 is added again
    Then the output says "its ledger"
    And orders at dc2 holds the records of dc1, each once and in order

  Scenario: A mirror is deleted by hand
    When an operator creates returns at dc1 with 1 partition
    And 10 records are written to returns at dc1
    Then returns at dc2 holds the records of dc1, each once and in order
    When an operator deletes returns at dc2
    Then the job says that returns is recreated
    And returns does not exist at dc2
    When 5 records are written to returns at dc1
    And the engineer accepts the loss of dc1-to-dc2
    Then the message says "continues behind the lost records: returns-0 (recreated)"
    And returns at dc2 holds the last 5 records of dc1
