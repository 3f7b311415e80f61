"""Text generation: folders of exported language models, tokens in and text out. Needs the extra `generate`.

from intarsia import generation
model = generation.load("folder")
for piece in model.stream("Once upon a time", max_new_tokens=50):
    print(piece, end="")
"""

from __future__ import annotations

from intarsia.generation.generated_text import Generation as Generation
from intarsia.generation.search_options import SearchOptions as SearchOptions
from intarsia.generation.text_generator import TextGenerator as TextGenerator
from intarsia.generation.text_generator import load as load

__all__ = ["Generation", "SearchOptions", "TextGenerator", "load"]
