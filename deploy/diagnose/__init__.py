"""What is wrong with a machine or a deployment, and what to do."""
