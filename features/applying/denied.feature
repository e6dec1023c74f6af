Feature: A broker denies a right
  An apply ends within seconds, exits with 1 and names the right. A job goes on as soon as it has the right.

  Scenario: One right after the other is missing
    Given orders at dc1 holds 10 records
    And a topology copies orders from dc1 to dc2 as a user that may do everything there

    When dc1 denies the user to describe ACLs
    And the engineer runs repl plan
    Then the exit code is 1
    And the output says "the ACLs of dc1 (cluster authorization failed); it needs DESCRIBE on the cluster"

    When dc2 denies the user to create orders
    And the engineer runs repl apply
    Then the exit code is 1
    And the output says "— grant CREATE on the topic orders at dc2 to the principal of this apply"

    When dc2 denies the user to write with transactional ids
    And the engineer runs repl apply
    Then the exit code is 1
    And the output says "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) — grant WRITE on the transactional ids that begin with repl. at dc2"

    When no right is denied any more
    Then orders at dc2 holds the 10 records
    And the engineer runs repl apply
    And the exit code is 0

    When dc2 denies the user to alter the settings of orders
    And the topology declares retention.ms of orders at dc2 as 3d
    And the engineer runs repl plan
    Then the exit code is 0
    And the output says "not checked on the broker, because this principal has no right to alter them"
    When the engineer runs repl apply
    Then the exit code is 1
    And the output says "— grant ALTER_CONFIGS on the topic orders at dc2 to the principal of this apply"
