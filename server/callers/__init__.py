"""Visitors: their access, keys and limits.

access: access control before any route
keys: API keys, stored as hashes in a file
quotas: counters of requests and characters of each visitor
"""
