"""One file for each scenario: what it runs, and which figures come of it."""
