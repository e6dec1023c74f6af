"""This package creates and grows mirror topics at the destination and keeps their settings like their
sources'.
"""
