Feature: A company leaves dc1 for dc2
  Each cluster has a schema registry. The applications write and read Avro with Confluent's serializers, and take the
  address of their cluster from the file that the cutover hands out. A Spark query has its offsets in a checkpoint.

  @long
  Scenario: Two waves, a kill in each phase, and a way back
    Given billing with 2 topics and shop with 100 are copied from dc1 to dc2, each by a flow of its own
    And billing and shop write and read their topics at dc1
    And a Spark query reads bills at dc1, and fails in a batch
    When repl cutover to-cloud is killed with -9 once it says "that must hold for"
    And repl cutover to-cloud is killed with -9 once it says "created"
    Then billing is refused at dc1
    When repl cutover to-cloud is killed with -9 once it says "transactions are open", while one is open
    And repl cutover to-cloud is killed with -9 once it says "updating ..."
    And the engineer runs repl cutover to-cloud --wave billing
    Then billing writes and reads at dc2, and shop at dc1
    When the engineer runs repl cutover to-cloud --wave billing --back
    And billing stops to write
    And repl cutover to-cloud --wave billing --back --switch is killed with -9 once it says "updating ..."
    And the engineer runs repl cutover to-cloud --wave billing --back --switch
    And the file of billing is removed
    Then billing writes and reads at dc1, and shop at dc1
    When the engineer runs repl cutover to-cloud --wave shop
    Then billing writes and reads at dc1, and shop at dc2
    When the checkpoint of the Spark query is translated
    And billing and shop stop to write
    Then each record that was written was read and decoded once, and is once at dc2
    And the Spark query has read each record of bills once
    And repl status shows billing as waiting, and shop as moved with its write pause
    And a plan shows no changes
