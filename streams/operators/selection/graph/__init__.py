"""Graphs: an application whose models answer parts of a query.

walk      what one query asks of its graph: rows, and how they hang together
stages    asks the stages, and the next ones about what they have answered
inputs    what each row is given, of the answers that belong to its items
answer    what the stages have answered ─▶ answer
"""
