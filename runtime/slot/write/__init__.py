"""The slot's destination side: lanes, their transactions, produce requests, ledger records and recovery.

It emits events to the flow. It knows neither the source side nor the supervisor.
"""
