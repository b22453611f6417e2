"""Dead letters, read again: what each says, whether its record can be sent once more, and what was done with it."""
