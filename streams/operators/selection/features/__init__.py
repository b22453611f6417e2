"""Features that queries do not bring, and candidates that take long to rank.

lookup      completes a query, and lets it wait for what is not known
table       what is known, and the running mean of each source
fair_queue  queries that take long, a bounded part of them in a turn
"""
