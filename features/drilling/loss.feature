Feature: Loss of paris
  A team rehearses its topology on a copy, with the steps that come with repl. paris is cut off, fails over, comes back
  and is failed back to. Then retention is too short, and the machine of the jobs is lost with paris.

  Scenario: paris is cut off and comes back
    Given 60 records are written to every topic at paris
    And the group billing has read 20 records of orders at paris
    And the link to paris is 20 ms slower
    And producers write 50 records/s to orders at paris
    And the producers have written 30 records to each topic
    And a live drill is killed, and another changes nothing
    And the producers stop
    And the flows have copied everything
    When the topic orders at paris is changed to {config: {retention.ms: 8d}}
    Then the plan shows "retention.ms: 7d -> 8d"
    When the engineer runs repl apply
    Then the plan shows no changes
    When the engineer runs repl pause orders
    And 40 records are written to orders at paris
    And paris is cut off
    And the engineer runs repl failover paris
    Then the RPO is at most 40 records
    And the RPO is at most 300 s
    And the group billing resumes at tokyo with 0 records read again and 0 skipped
    And the RTO is at most 600 s
    And repl status shows orders as failed_over
    And no job is running
    When 25 records are written to orders at tokyo
    And the link to paris is restored
    Then salvage lists 40 records of orders
    When the engineer runs repl salvage orders --replay
    Then the group billing resumes at tokyo with 0 records read again and 0 skipped
    When the engineer runs repl failback paris
    And the engineer runs repl failback paris --switch
    Then the group billing resumes at paris with 0 records read again and 0 skipped
    And both sides hold the same records
    And nothing is orphaned

  Scenario: retention is too short, and the machine of the jobs is lost with paris
    Given 60 records are written to payments at paris
    And the group audit has read 20 records of payments at paris
    And the flows have copied everything
    And the engineer runs repl pause payments
    And 10 records are written to payments at paris
    And retention deletes every record of payments at paris
    When the engineer runs repl resume payments
    Then the exit code is 1
    And repl status shows payments as data_loss
    And payments at tokyo holds 60 records
    When the machine of the jobs is lost
    And 1 of 3 brokers of tokyo are lost
    And 1 of 2 brokers of paris are lost
    And the engineer runs repl failover paris
    Then the group audit resumes at tokyo with 0 records read again and 0 skipped
    And the plan shows no changes
