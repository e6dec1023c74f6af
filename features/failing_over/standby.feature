Feature: A job survives its machine
  A standby on another machine takes the job over by itself. Of two machines that come back, one copies.

  Scenario: The machine of the job dies, another machine copies, and both come back
    Given machine-a runs the job into dc2
    And machine-b stands by for it
    And records are written to orders at dc1 all the time
    And orders are copied to dc2

    When machine-a stands still until machine-b starts the job
    Then machine-a still runs the job, and machine-b watches it again

    When machine-a dies
    Then machine-b copies orders to dc2
    And repl status says that the job runs elsewhere, and that no standby is ready

    When the engineer limits dc1-to-dc2 to 50MB/s from her laptop
    Then machine-b starts the job by that limit from now on

    When machine-b dies too
    And both machines come back at once and stand by
    Then one of them copies orders to dc2, by that limit
    And the other one does not run the job
    And orders at dc2 holds every record of dc1 once and in order

    When the engineer destroys the topology from her laptop
    Then both standbys say that repl stopped the job
    And no machine runs the job
