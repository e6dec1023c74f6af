Feature: Three datacenters and two writers
  Clients write payments at both dc1 and dc2. Orders are copied from dc1 over a hub to dc2. A lost datacenter comes
  back or is bypassed, and each cluster holds every record once.

  Background:
    Given dc1, the hub and dc2 replicate

  Scenario: Active-active: one side is lost, both producers continue, and the sides merge later
    Given 120 payments are written at dc1 and 80 at dc2, and both clusters hold all of them
    And billing reads 60 payments at dc1 with Kafka's console consumer
    And its offsets are synced to dc2
    When the job into dc2 is killed
    And 30 payments are written at dc1
    And dc1 is lost
    And 50 payments are written at dc2 by the producer of dc2 and 40 by the producer of dc1
    Then billing reads at dc2, with Kafka's console consumer, everything at dc2 that it had not read
    When dc1 is started again
    And 20 payments are written at dc1
    Then dc1 and dc2 hold all 340 payments, each once, and those of one producer in order
    And billing reads at dc2, with Kafka's console consumer, the payments that arrived late

  Scenario: The datacenter in the middle of a chain is lost
    Given 200 orders are written at dc1 and copied to dc2
    And shipping reads 90 orders at the hub with Kafka's console consumer
    And its offsets are synced to dc2
    When the hub is lost
    And the engineer runs repl failover hub
    Then the exit code is 0
    And the output says "at least 0 records"
    And the flow from the hub is failed_over, and the status of the flow to the hub says that the hub does not answer
    And shipping reads at dc2, with Kafka's console consumer, exactly the other 110 orders
    When 40 orders are written at dc1
    And the engineer declares a flow from dc1 to dc2 that starts at the origin offsets of the records at dc2
    Then dc2 holds all 240 orders, each once and in order
