Feature: Records stay readable
  Each datacenter has a schema registry of its own. Producers write Avro, JSON Schema and Protobuf; one names its
  schemas in a header. Whatever happens to the job or to a datacenter, consumers decode each record once.

  Scenario Outline: Ids that the flow will <ids>, through a kill, a failover and a failback
    Given a flow with schemas, whose ids it will <ids>
    When producers at dc1 write, register a second version and go on
    And meanwhile every process of the job into dc2 is killed with -9
    And the topology is applied again
    Then consumers at dc2 decode every record of dc1, each once and in order
    When dc1 is lost with its registry
    And the engineer runs repl failover dc1
    And producers at dc2 write with a third version
    And dc1 is started again with its registry
    And the engineer runs repl failback dc1
    And the engineer runs repl failback dc1 --switch
    And producers at dc1 write with a fourth version
    Then consumers at dc1 and dc2 decode every record of both, each once and in order

    Examples:
      | ids       |
      | keep      |
      | translate |
