"""How a deployment is set up, started and shown: settings, the command line, the composition root, the demo."""
