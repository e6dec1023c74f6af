"""Tests of the distribution: what is built, and what it does where nothing else is installed."""
