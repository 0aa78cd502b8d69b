"""The models of a server: loading and eviction, and the choice of the model that answers.

loading     a bundle as a model with its engine
catalogue   names of models and routes, and the choice of a route
routing     rules and budgets of a second model for sentences in doubt
opening     the bundles of a service, loaded or described
canary      the first answer of a model
budget      decisions: which models to load and to unload
machine     the memory that a process may use
figures     statistics of the models
repository  loads and unloads models as `budget` decides, and keeps models in use loaded
service     the methods for servers and programs
offline     a service for one program, in lanes as wide as its requests
heap        return of freed memory to the system
ipc         models in processes of their own, called over Unix sockets
upstreams   models of other servers
folders     changes in folders of bundles
"""
