"""The bytes of a compiled part in an EPContext node, and the way back to a program."""
