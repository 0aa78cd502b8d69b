"""What an operator sees of the server.

access_log: a line for each request
context: what is known of a request while it is served
logs: lines for people, or JSON for machines
metrics: figures for Prometheus
tracing: spans for OpenTelemetry
"""
