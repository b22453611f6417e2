"""Policy states: what a store must do, in memory and in Redis.

base       the contract of every store, and the store in memory
redis      states and offsets in Redis, written by compare-and-set
pruning    deletes states of contexts that were not taught for long
"""
