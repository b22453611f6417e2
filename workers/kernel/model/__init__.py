"""What runs one model: rows, batches, versions."""
