"""Hand-written loops with fastavro, against which Skysail is measured.

A Python process can do better: most of their CPU time is fastavro's (docs/benchmark.md).

The loops import Kafka clients directly. Beside the runtime's adapter no other place does. They must use none of the
code that they are compared with.
"""
