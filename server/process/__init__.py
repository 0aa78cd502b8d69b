"""The process and its machine: what a server has before it answers anything.

allocator: memory that is given back to the system
clock: a clock that goes on when somebody sets the machine's
locks: locks on files, which other processes respect
peers: what a process knows of the others under its supervisor
temporary: folders that go with their process
watchdog: heads of requests that come too slowly, bodies in crumbs, and how late the event loop is
"""
