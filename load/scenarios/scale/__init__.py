"""What grows with workers, models, applications, contexts and time."""
