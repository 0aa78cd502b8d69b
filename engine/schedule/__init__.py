"""Scheduling: requests are queued, admitted to lanes and stepped, by one thread.

engine      the thread (take, drop, admit, step), and the one place that catches errors of an executor
lane        slots of one executor, and the requests in them
queue       waiting requests; groups take turns
forecast    when an answer will be ready, and whether to accept a request
tempo       how long a turn takes
stats       counters of an engine for metrics
any_engine  the protocol of an engine of this process or of another one
aio         functions to decode from an event loop
slices      long work outside an event loop, in turns and until a deadline
places      places for work, shared fairly by owners
workers     work on long texts in processes that can be killed
worker      these processes, and the process that forks them
values      values as bytes, for messages to and from workers
"""
