"""What the server says about itself: monitoring pages, Prometheus metrics, system account services
and events.
"""
