"""Settings: their form, where they are read from, the page that lists them."""
