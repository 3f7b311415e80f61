"""Layout assignment: convolutions and pools on channels-last tensors."""
