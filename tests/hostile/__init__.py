"""A hostile proxy before the destination's transaction API, while records are copied and then compared.

`make hostile` does hundreds of rounds (`--seed`, `--rounds`); test_hostile.py a short, seeded version. `wire`
knows the requests of the API, `faults` chooses what becomes of each, `proxy` carries it out. `copies` are
what copies: slots, file sources, replays and restores in this process, and the whole job on Spark. `rounds`
puts them together.
"""
