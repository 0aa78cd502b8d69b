"""Who asks, and how much they may.

access: who may send a request, decided before any route
keys: the file of API keys, of which it holds hashes only
quotas: requests and characters, counted by visitor
"""
