"""Alternatives to Skysail, which do the same work on the same records, and their measurement.

The files named after a system (`quix.py`, `bytewax.py`, ...) run in that system's own environment. They may import the
system, `load.research.peers.task`, `load.research.peers.bridge` and `schemas`, and nothing else of Skysail.
"""
