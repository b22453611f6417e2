"""Model workers: packages on disk, runtimes that predict, the batcher, and the process that runs them."""
