Feature: The link between two datacenters is cut
  Nobody is told: packets are simply lost. What is written meanwhile waits at its own side.

  Scenario: For twenty seconds nothing gets through
    Given dc1 and dc2 replicate orders over a link
    And 50 records were copied
    When the link to dc1 is cut for 20 seconds while 200 records are written
    Then none of them arrived meanwhile
    And the status tells how far dc2 is behind
    When the link is restored
    Then dc2 holds all 250 records, each once and in order
