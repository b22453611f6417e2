"""Arithmetic only: selection policies, losses and batch-size controllers. No I/O, no clock, no global randomness."""
