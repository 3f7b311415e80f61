"""Which provider runs which node, and what is copied between their memories."""
