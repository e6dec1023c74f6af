Feature: Leaving paris for tokyo
  A team rehearses on a copy how its clients leave paris: two waves with a flow each, a way back, and the end of paris.

  Scenario: from the first topic to the retired cluster
    Given 60 records are written to every topic at paris
    And the group billing has read 20 records of orders at paris
    And the group audit has read 30 records of payments at paris
    And the flows have copied everything
    When the engineer runs repl promote orders --rehearse
    Then the output says "Nothing was changed."
    When the engineer runs repl cutover to-tokyo
    Then the output says "write pause"
    And the group billing resumes at tokyo with 0 records read again and 0 skipped
    When 25 records are written to orders at tokyo
    And 10 records are written to payments at paris
    And the engineer runs repl cutover to-tokyo --wave billing --back
    And the engineer runs repl cutover to-tokyo --wave billing --back --switch
    Then the group billing resumes at paris with 0 records read again and 0 skipped
    And orders at paris holds 85 records
    When 15 records are written to orders at paris
    And the flows have copied everything
    And the engineer runs repl cutover to-tokyo --wave billing
    And the engineer runs repl cutover to-tokyo --wave rest
    Then the group billing resumes at tokyo with 0 records read again and 0 skipped
    And the group audit resumes at tokyo with 0 records read again and 0 skipped
    And orders at tokyo holds 100 records
    And payments at tokyo holds 70 records
    And the plan shows no changes
    When paris is lost
    And 5 records are written to orders at tokyo
    Then orders at tokyo holds 105 records
