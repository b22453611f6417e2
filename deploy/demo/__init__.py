"""The demo: five models of different quality, one that breaks, one that is replaced, and the report of it."""
