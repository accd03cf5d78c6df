"""Monitoring of the server: pages, Prometheus metrics, system account services and events."""
