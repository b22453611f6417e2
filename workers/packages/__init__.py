"""Model packages: made, verified, loaded, converted."""
