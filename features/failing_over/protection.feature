Feature: Mirrors that only the flow writes
  protect: acl refuses every other writer at the mirror topics, whatever gives it the right. A promotion lets
  the producers write.

  Scenario: Producers with rights wait for the promotion at a cluster with SASL
    Given two clusters with SASL
    And a rule at dc2 lets app write orders and refunds
    And a rule at dc2 lets everyone write all topics that begin as payments does
    And a rule at dc1 lets clerk read orders
    When orders and payments are copied from dc1 to dc2 with protect: acl
    Then the plan said that the rule of payments is replaced
    And the plan said that clerk may read orders at dc2
    And rules at dc2 let clerk read orders
    And app is refused at orders and at payments at dc2
    And new records of orders and payments arrive at dc2
    And stranger writes another topic that begins as payments does
    When the topic refunds is created at dc1
    Then app is refused at refunds at dc2 as soon as it is there
    And a plan shows no changes
    When a rule at dc1 allows auditor everything on orders
    Then rules at dc2 let auditor read and describe orders, and none lets it write
    And a plan shows no changes
    When the rules of auditor and clerk are removed at dc1
    Then no rule at dc2 names auditor or clerk
    And a plan shows no changes
    When the engineer promotes the flow
    Then the exit code is 0
    And app writes orders, payments and refunds at dc2
    And the rules at dc2 are those from before

  @long
  Scenario: Producers with rights wait for the promotion at a cluster with mutual TLS
    Given two clusters with TLS, where dc2 allows everyone what no rule speaks of
    When orders and payments are copied from dc1 to dc2 with protect: acl
    Then app is refused at orders and at payments at dc2
    And new records of orders and payments arrive at dc2
    And a plan shows no changes
    When the engineer promotes the flow
    Then the exit code is 0
    And app writes orders and payments at dc2
    And the rules at dc2 are those from before
