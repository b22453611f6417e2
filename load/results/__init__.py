"""Results of runs: written, compared, shown."""
