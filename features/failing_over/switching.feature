Feature: A datacenter is left on purpose
  Producers stop, everything is copied, groups follow, and only then the flow ends. Nothing is lost, and a
  file that is out of date can't undo it.

  Scenario: Planned switch-over with zero loss
    Given orders are copied from dc1 to dc2
    And 200 records are written to orders at dc1
    And billing read 90 of them at dc1
    When somebody runs repl promote there
    Then the exit code is 0
    And orders at dc2 holds all 200, each once and in order
    And repl status says that there is promoted
    And billing reads exactly the other 110 at dc2
    When somebody runs repl pause there
    Then the exit code is 3
    And the message says "from promoted a flow becomes active, over a promoted reverse flow"
    When somebody applies the topology as it was before
    Then the exit code is 3
    And the message says "was promoted, and can't become active"
