"""Scheduling: requests wait, are admitted to lanes and stepped, by one thread.

engine      the thread: take, drop, admit, step, and the one fault boundary
lane        slots of one executor, and the requests in them
queue       requests that wait; groups take turns
forecast    when an answer will be there, and whether to accept
tempo       how long a turn takes
stats       what an engine says of itself
any_engine  what decodes groups: an engine of this process, or of another
aio         the bridge to an event loop
slices      long work beside an event loop, by turns and until a deadline
"""
