Feature: Jobs that die
  Killing anything loses nothing and doubles nothing.

  Background:
    Given the topology runs

  Scenario: Killed with -9, started again by its supervisor
    Given records are written to orders at dc1 all the time
    When the job into dc2 is killed with -9
    Then the job into dc2 runs again
    And orders at dc2 holds those of dc1, each once and in order

  Scenario: Killed together with its supervisor
    When everything of the job into dc2 is killed with -9
    And 10 records are written to orders at dc1
    Then repl drift tells that the job into dc2 is not running
    When the topology is applied with --no-wait
    Then the output says "not running: last heartbeat"
    And orders at dc2 holds those of dc1, each once and in order
