"""Untrusted sessions in a process apart ("untrusted.process"): the model is read, compiled and run there, and what it may
ask for is limited from outside.

`session` is the part of the session that stays in the program, `child` what the process runs, `confine` what the process gives
up before it sees the model, `process` starts it, waits for it and ends it, `wire` is what the two say to each other. What the
process says is data of a stranger: JSON and the bytes of arrays, never pickles.
"""
