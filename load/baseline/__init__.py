"""Hand-written loops, as one would write them with fastavro: what Skysail is measured against.

They are not the least that a Python process can do: most of their CPU time is fastavro's (docs/benchmark.md).

The loops import Kafka clients directly, the only place beside the runtime's adapter that does: they must owe nothing to
the code they are compared with.
"""
