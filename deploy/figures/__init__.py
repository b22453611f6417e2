"""Figures for others: alert rules for Prometheus and dashboards for Grafana, from one declaration of what they show."""
