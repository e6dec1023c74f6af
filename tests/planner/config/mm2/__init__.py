"""Tests of reading MirrorMaker 2 configurations."""
