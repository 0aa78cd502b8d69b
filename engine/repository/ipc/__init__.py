"""Engines in processes of their own, called over Unix sockets: frames of a length and msgpack, never pickle.

messages     messages between a front end and an engine process, as frozen structures
frames       a connection that sends the messages of one turn of an event loop as one frame
host         the engine process: offers the models of a service to front ends that connect
orders       loading, unloading and reloading of models on order of a front end
groups       groups of requests that a front end has sent, and the silence of a stopped process
connection   the front end: the connection to one engine process
connections  connections to all engine processes; choice and retry
remote       an engine in other processes, with the methods of an engine
service      a service whose models are in other processes
"""
