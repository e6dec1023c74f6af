"""A long run of daily life: load, applies, groups, kills, and a failover and failback every few minutes.

    make soak ARGS='--hours 2 --seed 7'

After each failback both clusters are compared record by record, and in the end what grew is drawn.
"""
