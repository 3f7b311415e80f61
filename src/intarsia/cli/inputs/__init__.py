"""A model's inputs as the command line gives them: sizes, files, pictures, literals, generated arrays."""
