"""One role at work: reads, calls its kernel, performs effects, commits."""
