"""A process of many models: memory, turns, and what comes of loading."""
