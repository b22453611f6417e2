"""Parts of scenarios that are measured in processes of their own."""
