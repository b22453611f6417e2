"""What single experiments measure with."""
