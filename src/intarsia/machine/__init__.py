"""What this machine allows the process: cores, memory, matrix tiles, forks."""
