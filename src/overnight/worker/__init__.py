"""Runs requests: leases blocks, starts what there is room for, records what came of it."""
