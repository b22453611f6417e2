"""Settings: their form, their sources, the page that lists them."""
