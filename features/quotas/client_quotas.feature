@long
Feature: Client quotas
  A quota keeps one client from taking what others need. The topology holds quotas like topics and ACLs: a plan shows
  each limit, and limits that no topology declares are not changed.

  Scenario: A limit is set, and later lowered
    Given the topology limits the user loader at dc1: "producer_byte_rate: 10MB/s, request_percentage: 12.5"
    When the topology is applied
    Then the exit code is 0
    And the limits of loader at dc1 are "producer_byte_rate=10000000, request_percentage=12.5"
    When the topology limits the user loader at dc1: "producer_byte_rate: 5MB/s"
    And the topology is planned
    Then the output says "~ producer_byte_rate: 10MB/s -> 5MB/s"
    And the output says "~ request_percentage: 12.5 -> no limit  # no longer declared"
    When the topology is applied
    Then the limits of loader at dc1 are "producer_byte_rate=5000000"
    When the topology is planned
    Then the output says "No changes. The clusters match the topology."

  Scenario: The quota leaves the topology, and the limit that an operator added stays
    Given the topology limits the user loader at dc1: "producer_byte_rate: 10MB/s"
    And the topology was applied
    When an operator sets consumer_byte_rate=1000 for loader at dc1
    And the quota of loader is taken out of the topology
    And the topology is planned
    Then the output says "- quota.dc1.user/loader"
    And the output says "limits that others set stay: consumer_byte_rate"
    When the topology is applied
    Then the limits of loader at dc1 are "consumer_byte_rate=1000"

  Scenario: Kafka refuses a limit before anything is changed
    Given the topology limits the address not-an-address at dc1: "connection_creation_rate: 5"
    When the topology is planned
    Then the exit code is 1
    And the message says "dc1 refuses it"

  Scenario: The quotas of the primary are at the other side before its clients come
    Given an operator sets producer_byte_rate=10000000 for loader at dc1
    And an operator sets producer_byte_rate=10000000 for auditor at dc1
    And an operator sets producer_byte_rate=1000 for auditor at dc2
    And the flow dc1-to-dc2 mirrors the quotas of dc1
    When the mirrored quotas of loader and auditor are applied
    Then the limits of loader at dc2 are "producer_byte_rate=10000000"
    And the limits of auditor at dc2 are "producer_byte_rate=1000"
    When an operator removes producer_byte_rate of loader at dc1
    And the mirrored quotas of loader and auditor are applied
    Then the output says "no longer mirrored by flow.dc1-to-dc2"
    And loader has no limits at dc2
    And the limits of auditor at dc2 are "producer_byte_rate=1000"
