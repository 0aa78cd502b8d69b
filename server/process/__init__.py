"""The process and its machine, set up before the server answers requests.

allocator: returns free memory to the system
clock: a clock that ignores changes of the machine's clock
forking: a fork server that shares the memory of its imports with all processes
locks: locks on files between processes
peers: the connection of a process to its supervisor and to other processes
temporary: folders that are removed with their process
watchdog: the lag of the event loop
"""
