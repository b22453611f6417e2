"""What every scenario uses: arrivals, clients, recorders, probes."""
