"""The demo: five models of different quality, live queries, one model that breaks, and the report of what happened."""
