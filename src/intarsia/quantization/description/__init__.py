"""What is to be quantised, and how: the description between a model and what writers make of it."""
