"""From a checked request to its answer, by any model.

events: answers as server-sent events
orders: what the operator orders of models
partly: arrays of which a bad text spoils itself alone
results: texts and a model to results, by the cache where it has them
texts: what a contract asks for: languages resolved, texts accepted, translated, summarized
translation: texts, some of them with formats, to their translations
"""
