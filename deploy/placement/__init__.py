"""Which process and machine each role and model runs in."""
