Feature: Clients leave a cluster for good, in waves
  A team moves from dc1 to dc2. Billing and its topic go first, the rest follows.

  Scenario: Two waves, a way back, and a producer that stays behind
    Given orders and payments are copied from dc1 to dc2, in the waves billing and rest
    And app writes 100 records to orders and 20 to payments at dc1
    And the group billing has read 40 records of orders at dc1
    And the group audit, which the flow excludes, has read 5 records of orders at dc1
    When the engineer runs repl promote --rehearse
    Then the exit code is 0
    And the output says "groups.exclude takes this group out"
    And the output says "Nothing was changed."
    When the engineer runs repl cutover to-cloud --timeout 4s while a transaction is open in orders
    Then the exit code is 1
    And the message says "transactions are open in orders"
    And the message says "the producers of the wave billing are still stopped at the source"
    And app is refused at orders at dc1
    When the engineer runs repl cutover to-cloud --back
    Then the exit code is 0
    And app writes 10 records to orders at dc1
    And new records of orders arrive at dc2
    When the engineer runs repl cutover to-cloud
    Then the exit code is 0
    And the message says "is not moved: groups.exclude takes this group out"
    And the output says "moved"
    And the output says "write pause"
    And repl status shows billing as moved and rest as waiting
    And the handed-out files of billing lead clients to dc2
    And app is refused at orders at dc1
    And app writes 10 records to orders at dc2
    And app writes 10 records to payments at dc1
    And the group billing reads exactly the other records of orders at dc2
    And a plan shows no changes
    When the engineer runs repl cutover to-cloud --back
    Then the exit code is 3
    And the message says "moved to the destination"
    When the engineer runs repl cutover to-cloud
    Then the exit code is 0
    And app is refused at payments at dc1
    And payments at dc2 holds what dc1 has, each once and in order
    When a super user writes 3 records to orders at dc1
    And the engineer runs repl cutover to-cloud --wave billing
    Then the exit code is 0
    And the message says "3 records were written at the source since"
    And repl salvage lists 3 records of orders
    When the engineer runs repl cutover to-cloud --wave billing --back
    Then the exit code is 3
    And the message says "topics return with their whole flow"
    When the engineer runs repl failback dc1
    Then the exit code is 0
    And the output says "deny.User:*.WRITE.topic.orders will be destroyed"
    When the engineer runs repl failback dc1 --switch
    Then the exit code is 0
    And orders at dc1 holds every record that was written, each once
    And app writes 10 records to payments at dc1
    And new records of payments arrive at dc2
    And a plan shows no changes

  @long
  Scenario: A wave with a flow of its own moves, and returns alone
    Given orders and payments are copied from dc1 to dc2 by a flow each, in the waves billing and rest
    And app writes 100 records to orders and 20 to payments at dc1
    And the group billing has read 40 records of orders at dc1
    When the engineer runs repl cutover to-cloud
    Then the exit code is 0
    And app writes 10 records to orders at dc2
    When the engineer runs repl cutover to-cloud --wave billing --back
    Then the exit code is 0
    And the message says "Next: stop its producers at the destination"
    And app writes 5 records to orders at dc2
    When repl cutover to-cloud --wave billing --back --switch is killed once it says "updating ..."
    And the engineer runs repl cutover to-cloud --wave billing --back --switch
    Then the exit code is 0
    And orders at dc1 holds every record that was written, each once
    And the group billing reads exactly the other records of orders at dc1
    And app writes 5 records to orders at dc1
    And new records of orders arrive at dc2
    And app writes 5 records to payments at dc1
    And new records of payments arrive at dc2
    And a plan shows no changes
    When the engineer runs repl cutover to-cloud
    Then the exit code is 0
    And app is refused at orders at dc1
    And app writes 5 records to orders at dc2

  @long
  Scenario: A wave whose copies differ does not move
    Given orders and payments are copied from dc1 to dc2 by a flow each, in the waves billing and rest
    And the gates compare every record
    And app writes 100 records to orders and 20 to payments at dc1
    And the records of orders are copied
    When a super user writes 1 record to orders at dc2
    And the engineer runs repl cutover to-cloud --timeout 30s
    Then the exit code is 1
    And the message says "records of the wave billing differ"
    And the message says "nothing was changed"
    And app writes 5 records to orders at dc1
    When the engineer runs repl cutover to-cloud --wave rest
    Then the exit code is 0
    And repl status shows rest as moved and billing as waiting
