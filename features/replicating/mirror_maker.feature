Feature: A configuration of MirrorMaker 2 is taken over
  repl import writes a topology that does what MirrorMaker 2 did. It is applied as it was written, and edited later.

  Scenario: Paris and Tokyo copy all topics to each other
    Given orders and refunds at paris and returns at tokyo hold records
    And an mm2.properties by which paris and tokyo copy all topics to each other
    When the engineer imports it and applies the file as it was written
    Then paris.orders and paris.refunds at tokyo hold the records of paris, each once and in order
    And tokyo.returns at paris holds the records of tokyo, each once and in order
    And a plan shows no changes
    And retention.ms of paris.orders at tokyo is not that of paris

    When the engineer removes exclude from both flows, and adds configs: {sync: all} to both
    And applies it
    Then retention.ms of paris.orders at tokyo is that of paris
    When an operator sets log.retention.ms of the broker at paris to 3600000
    Then retention.ms of paris.orders at tokyo becomes 3600000
    When the team of paris creates shipments and writes to it
    Then paris.shipments at tokyo holds the records of paris, each once and in order
    And paris holds no mirror of a mirror, and neither does tokyo

    When the engineer adds on_source_delete: delete to both flows
    And the team of paris deletes refunds
    Then the plan says that paris.refunds at tokyo will be destroyed, and no other topic
    When the engineer applies it
    Then paris.refunds at tokyo is gone
    And a plan shows no changes
