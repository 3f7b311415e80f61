"""Ordered rule sets, one literal each, each rule with its equation."""
