"""Models in vendors' forms, for their own tools and runtimes: `intarsia convert`."""
