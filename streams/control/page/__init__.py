"""The live page: what it shows, and its alerts."""
