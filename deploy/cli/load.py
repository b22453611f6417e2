"""`skysail load`: scenarios and their results."""
