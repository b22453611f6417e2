"""How many queries a second, for how much CPU, and how late."""
