"""Models that scenarios run."""
