"""The search for the next token: beam search and sampling over slots, in the executor's array namespace.
Knows no model.

executor    protocols of a backend: `Executor`, `Stepper`, `StepInput`, `TopK`
beam        the search: ranks candidates, collects finished hypotheses, continues the others
kind        the computations that a step needs for the options of its slots
greedy      a step in which every slot keeps one hypothesis
state       arrays of the search, one row a slot
diverse     groups of beams that avoid each other's tokens
filters     tokens banned at each step, and the draw of a sample
penalties   scores of hypotheses from their log-probabilities
finished    the finished hypotheses of a slot
certain     tokens of an answer that are certain before its end
stepper     executor and search by turns
"""
