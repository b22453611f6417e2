"""One file for each scenario: what it runs, and its figures."""
