"""The control plane: a Faust app that reads `reports` and shows what the deployment is doing. Nothing depends on it."""
