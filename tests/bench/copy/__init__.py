"""The copy against MirrorMaker 2, side by side on the same brokers: `make bench-copy`.

`__main__` is the order of things; `workloads` what is copied; `fill` preloads it; `mirror`, `slots`, `job`
and `librdkafka` are the sides; `throughput` and `latency` measure; `table` prints medians and writes
build/bench-copy.json.
"""
