"""Batch controllers, runtimes, the cache, and models that are late or need a GPU."""
