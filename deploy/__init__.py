"""Sets up, starts and shows a deployment: settings, the command line, the composition root, the demo."""
