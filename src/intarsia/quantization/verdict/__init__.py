"""What quantising a model costs on a user's data, by layer, and which layers to leave as they were."""
