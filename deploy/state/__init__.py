"""What a deployment should be and what it has published."""
