"""What every process of Skysail does: logs, metrics, ports, progress, interrupts."""
