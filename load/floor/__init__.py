"""Hand-written loops: the least a Python process can do for the same bytes. What Skysail is measured against.

The loops import Kafka clients directly, the only place beside the runtime's adapter that does: they must owe nothing to
the code they are compared with.
"""
