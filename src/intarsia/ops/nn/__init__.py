"""Neural networks: convolutions, pools, normalisations, attention, recurrence, images, losses."""
