"""Engines in processes of their own, asked over Unix sockets: frames of a length and msgpack, never pickle.

messages    what goes over a link, as frozen structures
frames      an end of a link: messages of a turn of an event loop go as one frame
host        offers the models of a service to whoever connects
orders      what the host does with models when it is told to
links       the engine processes, as who asks them sees them: which is asked, and what if it goes
remote      an engine that other processes host, as those who submit see it
service     a service whose models are in other processes
"""
