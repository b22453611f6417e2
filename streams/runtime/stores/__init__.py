"""Policy states: what a store must do, in memory and in Redis."""
