"""Schema registries: the client, the names of subjects, and the copier of schemas.

It knows the contract alone. The planner, the driver, slots, transforms and audits use it.
"""
