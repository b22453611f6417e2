"""Pure kernels: records in, effects out. No I/O, no clock, no global randomness."""
