"""TopK, NonZero, Compress, Unique, NonMaxSuppression."""
