"""Routing by confidence: a first model answers, and a second one the sentences in doubt.

doubts      reasons for doubt of the answers to sentences
weaving     answers of the second model in the places of sentences
routed      texts through both models, within the budget of the second one
"""
