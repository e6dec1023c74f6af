Feature: Restore from a backup
  A cluster is lost with its disks, and no other cluster has a copy of its topics. A flow into raw files has backed them
  up. The engineer restores the topics, their records and the places of their consumers into another cluster.

  Scenario: A cluster is restored from its backup
    Given a job backs up orders of dc1 into the archive
    And 200 records are written to orders at dc1, and billing has read 120 of them
    And the archive holds 200 records, and that billing has read 120
    When dc1 is lost
    And the engineer plans the restore of the archive into dc2
    Then the exit code is 0
    And the output says "records: 200"
    And dc2 has no topic orders
    When the engineer applies the saved plan
    Then the exit code is 0
    And the message says "topic.dc2.orders: restored"
    And orders at dc2 holds every record of dc1 once and in order
    And orders at dc2 keeps its records as long as at dc1
    And billing reads at dc2 exactly the 80 records that it had not read
    When the engineer restores the archive into dc2 again
    Then the exit code is 0
    And the output says "holds a part of this restore, which continues"
    And orders at dc2 holds every record of dc1 once and in order
