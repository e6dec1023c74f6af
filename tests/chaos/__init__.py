"""Chaos: records are copied while everything that takes part is killed and cut, then compared one by one.

`make chaos` does a thousand blows (`--seed`, `--blows`); test_chaos.py a short, seeded version. `links` cuts,
`copiers` are what copies, `blows` what is done to it, `storm` the order of things.
"""
