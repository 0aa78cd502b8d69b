"""The search for the next token: beam search and sampling over slots, in the executor's array namespace.
Knows no model.

executor    what a backend offers: `Executor`, `Stepper`, `StepInput`, `TopK`
beam        the search: candidates, those that end, those that go on
kind        what a step computes: what its slots ask for
greedy      a step in which every slot keeps one hypothesis
state       its arrays, one row a slot
diverse     groups of beams that avoid each other's tokens
filters     what to ban at each step, and which candidate a sample takes
penalties   what makes a score of log-probabilities
finished    the finished hypotheses of a slot
certain     what is certain of an answer before its end
stepper     executor and search by turns
"""
