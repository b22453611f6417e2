"""Select and combine: which models a query asks, and what is answered by its deadline."""
