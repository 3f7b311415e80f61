"""Searches of com.microsoft, which run a decoder step by step: beams, the likeliest token, samples."""
