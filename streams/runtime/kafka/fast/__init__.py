"""The fast path: fetch and produce requests of our own over aiokafka's connections."""
