"""Logs, metrics and traces for operators.

access_log: a line for each request
context: data of a request for its metrics, log lines and trace
logs: log lines as text or JSON
metrics: figures for Prometheus
tracing: spans for OpenTelemetry
"""
