"""Any primitive graph as a loop nest."""
