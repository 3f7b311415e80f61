"""Untrusted sessions in a separate process ("untrusted.process"): the model is read, compiled and run there, and what it may
ask for is limited from outside.

`remote_engine` is what stays in the program: the session holds it where it would hold the engine of a model in its own
process. `worker` is what the process runs, `confine` what it gives up before it sees the model; `process` starts it, waits for
it and ends it, and `messages` are what the two say to each other. What the process says is data of a stranger: JSON and the
bytes of arrays, never pickles.
"""
