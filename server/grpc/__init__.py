"""The Open Inference Protocol over gRPC, on a port of its own.

messages: builds the protocol's messages from a table
codec: converts messages to the JSON and tensors of the HTTP routes, and back
bridge: sends a call as a request to the application, which checks and answers it
servicer: methods, health, reflection, and the server
"""
