"""What a user would run instead of Skysail, doing the same work on the same records, and how all are measured.

The files named after a system (`quix.py`, `bytewax.py`, ...) run in that system's own environment: they may import the
system, `load.research.peers.task`, `load.research.peers.bridge` and `schemas`, and nothing else of Skysail.
"""
