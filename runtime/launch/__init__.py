"""This package starts, stops and finds jobs through their launchers."""
