"""The stream processor: pure operators, the topology that joins them, and the runtime that performs their effects."""
