"""Learn: observations into policy states, a deterministic fold.

kernel    the role's kernel: queues observations, reads states, writes them with their offset
fold      one observation into one state
"""
