"""Learn: observations into policy states, a deterministic fold."""
