Feature: What stops producers at a cluster without an authorizer
  A fence of rules is refused, a quota slows the producers down, and with none a person stops them.

  @long
  Scenario: The producer goes on writing while its topic moves
    Given orders and payments are copied from dc1 to dc2, in the waves billing and rest
    When the engineer runs repl cutover to-cloud with fence: acl
    Then the exit code is 1
    And the message says "has no authorizer, so fence: acl can't stop the producers of the wave billing"
    And the message says "write fence: quota and name the producers"
    When shop writes to orders at dc1 without a pause
    And the engineer runs repl cutover to-cloud with fence: quota
    Then the exit code is 0
    And the output says "moved"
    And the client id shop may write 1 byte a second at dc1
    When the engineer runs repl cutover to-cloud with fence: none
    Then the exit code is 0
    And payments at dc2 holds what dc1 has, each once and in order
    When the records of orders that stayed at dc1 are replayed
    Then orders at dc2 holds every record that shop wrote, each once
