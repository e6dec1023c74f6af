Feature: The lab survives a killed cluster
  The clusters of a lab stand for datacenters. A killed cluster behaves like one after a power cut: the other cluster
  continues, and acknowledged records are kept.

  Background:
    Given a lab with the clusters dc1 and dc2
    And the topic orders at both clusters

  Scenario: What was acknowledged before the kill is there afterwards
    Given 500 records were written to orders at dc1
    When dc1 is killed
    Then dc1 is down and dc2 is up
    When dc1 is started
    Then orders at dc1 holds the same 500 records
    And the cluster id of dc1 is the same as before

  Scenario: The other cluster goes on while one is dead
    When dc1 is killed
    And 100 records are written to orders at dc2
    Then orders at dc2 holds the same 100 records

  Scenario: A paused cluster does not answer, and continues when it is unpaused
    Given 50 records were written to orders at dc2
    When dc2 is paused
    Then dc2 does not answer within 1 second
    When dc2 is unpaused
    Then orders at dc2 holds the same 50 records
