"""Answers to checked requests, from any model.

events: answers as server-sent events
orders: reload, load and unload models
pages: work on pages and segments that runs in workers
partly: routes that answer texts, each with an error of its own if the client wants that
results: results of texts from a model or the cache
texts: steps of a contract: resolve languages, check and charge texts, translate, pick a summarizer
translation: translations of plain texts, pages and segments
"""
