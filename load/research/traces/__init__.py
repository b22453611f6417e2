"""Production traces, played faster."""
