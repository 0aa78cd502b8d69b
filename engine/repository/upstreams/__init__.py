"""Models of other servers, asked over OpenAI's protocol and served like any model.

settings  the file with the upstreams
prompts   messages for each family of models
checks    faults of an answer, and their repair
breaker   pauses of an upstream that fails
spending  price of a day
client    one chat completion, whole or as a stream
asking    a checked answer, asked for again after failures and faults
engine    an engine that asks an upstream
opening   an upstream as a model
markers   formats of texts, by marks at their borders
fallback  answers of local models in the place of failed ones
"""
