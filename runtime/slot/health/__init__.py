"""The slot's supervision: inspecting, stopping and resuming partitions, and finding what blocks them.

It emits events to the flow. It knows neither the source side nor lanes, and writes to no cluster.
"""
