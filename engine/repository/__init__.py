"""Which models are in memory, and which of them answers.

loading     from a bundle to a model behind its engine
catalogue   models by name, task and languages: the one, or the two, that answer
budget      what is loaded and what must go: decisions only
figures     what is told of the models
repository  does what `budget` decides; lends models to those who use them
service     models by name, for those who serve or run them
offline     a service for one program, in lanes as wide as its requests
heap        memory that nobody uses, given back
ipc         models in processes of their own, asked over Unix sockets
folders     bundles that come and go while their folders are served
"""
