"""Where a batch is predicted: a thread, a child process, a pool of them."""
