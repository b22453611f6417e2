"""Parts that scenarios share, or that are too large for one file."""
