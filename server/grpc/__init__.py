"""The Open Inference Protocol over gRPC, on a port of its own.

messages: the protocol's messages, made of a table
codec: from messages to the JSON and tensors of the HTTP routes, and back
bridge: a call as a request to the application, which does all the rest
servicer: the methods, health and reflection, and the server
"""
