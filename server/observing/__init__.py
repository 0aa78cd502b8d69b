"""Logs, metrics and traces for operators.

access_log: a line for each request
context: data of a request for its metrics, log lines and trace
logs: log lines as text or JSON
instruments: counters, gauges and histograms of one process or several
metrics: figures of requests and decoding for Prometheus
figures: figures that are polled
tracing: spans for OpenTelemetry
"""
