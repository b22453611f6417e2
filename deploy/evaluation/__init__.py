"""An evaluation for people: as lines, as JSON and as a page."""
