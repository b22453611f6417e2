"""Join: predictions with feedback inside a window, one observation each."""
