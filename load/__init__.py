"""Open-loop load, the scenarios that measure Skysail, and the comparison of their results."""
