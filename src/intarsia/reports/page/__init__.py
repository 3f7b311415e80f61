"""Pages for a browser: their data, the script that shows these, and what goes into notebooks."""
