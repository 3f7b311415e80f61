"""Model packages, onnxruntime's format: a folder with a manifest, components, variants for providers, and shared assets.

`authoring` writes them (`saving` what goes to a new place), `selection` opens them and makes sessions; `schema` says what
the JSON files may hold, `paths` where they may point, `assets` how folders are hashed and files replaced.
"""
