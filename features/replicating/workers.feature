Feature: A job on a Spark cluster survives its Workers
  The slots of a Worker that is lost or restarted run again on the other Workers.

  Scenario: The machine of a Worker is lost, and then every Worker is restarted
    Given a standalone cluster of Spark with 2 Workers
    And the topology is applied, and its job has 2 slots on the cluster
    And records are written to orders at dc1 all the time
    And every partition of orders is copied to dc2

    When the machine of a Worker with a slot is lost
    Then another slot or another Worker copies the partitions of that slot

    When the machine comes back
    And the Workers are restarted one after another
    Then both slots run
    And every partition of orders is copied to dc2
    And orders at dc2 holds every record of dc1 once and in order
