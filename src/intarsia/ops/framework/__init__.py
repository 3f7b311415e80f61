"""What definitions rest on: registry, schemas, type inference, evaluation of one node."""
