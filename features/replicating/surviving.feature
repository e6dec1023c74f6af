Feature: Jobs are killed
  A killed job loses no record and duplicates no record.

  Background:
    Given the topology is applied and its jobs run

  Scenario: Killed together with its supervisor
    When every process of the job into dc2 is killed with -9
    And 10 records are written to orders at dc1
    Then repl drift reports that the job into dc2 is not running
    When the topology is applied with --no-wait
    Then the output says "not running: last heartbeat"
    And orders at dc2 holds the records of dc1, each once and in order
