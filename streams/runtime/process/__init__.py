"""One process of roles: how it runs, and what it says about itself."""
