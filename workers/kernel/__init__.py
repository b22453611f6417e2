"""The pure part of a worker: which rows are predicted together, by which version, and what is answered."""
