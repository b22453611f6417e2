"""What a run measured: written, compared, shown."""
