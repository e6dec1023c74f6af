"""Tests of reading live clusters."""
