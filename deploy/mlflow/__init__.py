"""Model folders of MLflow, read without MLflow."""
