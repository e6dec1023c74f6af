"""The slot's source side: fetch sessions, the filter of a flow, and the choice of batches to copy.

It emits events to the flow. It knows neither lanes nor the supervisor, and writes to no cluster.
"""
