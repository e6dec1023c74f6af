Feature: The link between two datacenters is cut
  Packets are lost without an error. Records that are written meanwhile wait at their source.

  Scenario: Twenty seconds without the link
    Given dc1 and dc2 replicate orders over a link
    And 50 records were copied
    When the link to dc1 is cut for 20 seconds while 200 records are written
    Then none of them arrived meanwhile
    And repl status shows how far dc2 is behind
    When the link is restored
    Then dc2 holds all 250 records, each once and in order
