"""Two plays of a trace's queries, unchanged and with one thing changed, and what comes of them."""
