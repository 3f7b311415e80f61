"""`TextGenerator`: a language model of a folder that goes on with texts and answers in conversations."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument, WrongType
from intarsia.generation.cached_text import CachedText
from intarsia.generation.causal_decoder import CausalDecoder
from intarsia.generation.generated_text import Generation
from intarsia.generation.model_folder import ModelFolder, read_folder
from intarsia.generation.sampling import Sampler
from intarsia.generation.search_options import SearchOptions
from intarsia.generation.speculation import DraftModel, Proposer, Speculation, from_the_text
from intarsia.generation.stop_texts import StopTexts
from intarsia.generation.tokenizer import Tokenizer, rendered_chat, special_tokens
from intarsia.session.inference_session import InferenceSession

if TYPE_CHECKING:
    import os

    from intarsia.options.session_options import SessionOptions


def load(
    path: str | os.PathLike[str], *, file: str | None = None, providers: Any = None, provider_options: Any = None,
    sess_options: SessionOptions | None = None, max_length: int | None = None, draft: str | os.PathLike[str] | None = None,
) -> TextGenerator:  # fmt: skip
    """A language model from a folder that optimum, onnxruntime-genai or transformers.js wrote.

    Args:
        path: the folder, or the decoder's file in it.
        file: which decoder, where the folder has several.
        providers, provider_options, sess_options: of its session.
        max_length: how many tokens a text may have, prompt included; None: what the configuration says, if it does.
        draft: the folder of a smaller model of the same tokens, whose guesses are used where `guesses` is not 0.

    Raises:
        NoSuchFile: no folder, or no decoder in it.
        InvalidArgument: a configuration or tokenizer cannot be read; the model is no decoder with a cache.
        NotImplemented: the extra `generate` is not installed.
    """
    folder = read_folder(path, file)
    session = InferenceSession(folder.decoder, sess_options, providers, provider_options)
    tokenizer = Tokenizer(folder.tokenizer) if folder.tokenizer is not None else None
    smaller = None
    if draft is not None:
        smaller = CausalDecoder(InferenceSession(read_folder(draft).decoder, sess_options, providers, provider_options))
    return TextGenerator(session, tokenizer, folder, max_length=max_length, draft=smaller)


class TextGenerator:
    """Goes on with texts. A call begins with the longest beginning that the cache has of the call before. Calls may overlap, in
    threads or as streams that are not at their end: each has a cache of its own then.

    Args:
        session: of a decoder with a cache.
        tokenizer: None: prompts are tokens, and so are results.
        folder: settings of the model; None: none.
        max_length: as of `load`.
        draft: a smaller model of the same tokens.
    """

    def __init__(
        self, session: InferenceSession, tokenizer: Tokenizer | None = None, folder: ModelFolder | None = None, *,
        max_length: int | None = None, draft: CausalDecoder | None = None,
    ) -> None:  # fmt: skip
        self.draft = DraftModel(draft) if draft is not None else None
        self.session, self.tokenizer, self.folder = session, tokenizer, folder
        self.max_length = max_length or (folder.context_length if folder is not None else None)
        self.decoder = CausalDecoder(session, max_length=self.max_length)
        self.end_tokens = folder.end_tokens if folder is not None else frozenset[int]()
        self._lock = Lock()
        self._idle: CachedText | None = CachedText(self.decoder)  # None: a call has it

    # --- texts ---

    def generate(self, prompt: Any, **options: Any) -> Any:
        """Go on with a prompt, or with each of several.

        Args:
            prompt: a text, a list of tokens, or a list of such.
            options: see `SearchOptions`; those of the model's configuration are the defaults.

        Returns:
            A `Generation`, or a list of them.

        Raises:
            InvalidArgument: an option, an empty prompt, or one that leaves no room for a token.
        """
        found = self._options(options)
        if found.num_beams > 1:
            from intarsia.generation.beam_search import beam_search

            searched = [beam_search(self, self._prompt(p), found) for p in ([prompt] if _is_one(prompt) else prompt)]
            return searched[0] if _is_one(prompt) else searched
        if _is_one(prompt):
            generation = Generation()
            for _ in self._pieces(self._prompt(prompt), found, generation):
                pass
            return generation
        from intarsia.generation.batch_generation import generate_batch

        return generate_batch(self, [self._prompt(p) for p in prompt], found)

    def stream(self, prompt: Any, *, into: Generation | None = None, **options: Any) -> Iterator[str]:
        """Pieces of text as they are generated. `into` gets what `generate` returns; otherwise as there."""
        yield from self._pieces(self._prompt(prompt), self._options(options), into if into is not None else Generation())

    async def astream(self, prompt: Any, *, into: Generation | None = None, **options: Any) -> AsyncIterator[str]:
        """`stream` for coroutines: the event loop goes on while another thread computes."""
        import asyncio

        pieces = self.stream(prompt, into=into, **options)
        while True:
            piece = await asyncio.to_thread(next, pieces, None)
            if piece is None:
                return
            yield piece

    # --- conversations ---

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, template: Mapping[str, Any] | None = None, **options: Any
    ) -> Generation:
        """The answer to a conversation.

        Args:
            messages: dicts with "role" ("system", "user", "assistant") and "content".
            template: more variables of the model's chat template, such as tools or enable_thinking.
            options: as for `generate`.

        Raises:
            InvalidArgument: the model has no chat template, or it refuses the messages; as `generate`.
        """
        generation = Generation()
        for _ in self.chat_stream(messages, template=template, into=generation, **options):
            pass
        return generation

    def chat_stream(
        self, messages: Sequence[Mapping[str, Any]], *, template: Mapping[str, Any] | None = None,
        into: Generation | None = None, **options: Any,
    ) -> Iterator[str]:  # fmt: skip
        """`chat`, in pieces of text as they are generated."""
        text = self.chat_prompt(messages, **(template or {}))
        tokens = self._tokenizer("a conversation").encode(text, special=False)
        yield from self._pieces(tokens, self._options(options), into if into is not None else Generation())

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The text that the model reads of a conversation."""
        folder = self.folder
        words = special_tokens(folder.tokenizer_config) if folder is not None else {}
        return rendered_chat(folder.chat_template if folder is not None else None, messages, words, **variables)

    # --- inside ---

    def _tokenizer(self, purpose: str) -> Tokenizer:
        if self.tokenizer is None:
            where = f"{self.folder.path} has no tokenizer.json" if self.folder is not None else "there is no tokenizer"
            raise InvalidArgument(f"{purpose} needs a tokenizer, and {where}: give lists of tokens")
        return self.tokenizer

    def _prompt(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            tokens = self._tokenizer("a text").encode(prompt)
        else:
            wrong = [t for t in prompt if isinstance(t, bool) or not isinstance(t, (int, np.integer)) or t < 0]
            if wrong:
                raise InvalidArgument(f"the prompt: expected a text or a list of tokens, got {wrong[0]!r} in a list")
            tokens = [int(t) for t in prompt]
        if not tokens:
            raise InvalidArgument("the prompt is empty: expected at least one token")
        return tokens

    def _options(self, given: Mapping[str, Any]) -> SearchOptions:
        options = SearchOptions.of(self.folder.search if self.folder is not None else {}, given)
        if options.stop or options.constrained:
            self._tokenizer("stop" if options.stop else "a grammar")
        return options

    def room_for(self, prompt: Sequence[int], options: SearchOptions) -> int:
        """How many tokens can be generated behind a prompt. Raises InvalidArgument where that is none."""
        if self.max_length is None:
            return options.max_new_tokens
        room = self.max_length - len(prompt)
        if room < 1:
            raise InvalidArgument(f"the prompt has {len(prompt)} tokens, at most {self.max_length - 1} fit: shorten it")
        return min(room, options.max_new_tokens)

    def new_decoder(self) -> CausalDecoder:
        """A decoder with nothing in its cache."""
        decoder = self.decoder.fork()
        decoder.reset()
        return decoder

    def _lease(self) -> CachedText:
        """The text in the cache, or an empty one where another call has it."""
        with self._lock:
            found, self._idle = self._idle, None
        return found if found is not None else CachedText(self.new_decoder())

    def _give_back(self, text: CachedText) -> None:
        with self._lock:
            self._idle = text

    def _pieces(self, prompt: list[int], options: SearchOptions, generation: Generation) -> Iterator[str]:
        start = time.perf_counter()
        if options.num_beams > 1:
            raise InvalidArgument("num_beams: a beam search has no pieces of text: use generate")
        room = self.room_for(prompt, options)
        sampler = Sampler(options, prompt, self.end_tokens)
        text = StopTexts(self.tokenizer, options.stop)
        constraint = self._constraint(options)
        cached = self._lease()
        try:
            scores, generation.reused_tokens = cached.scores_behind(prompt)
            generation.prompt_tokens = len(prompt)
            steps = self._steps(cached, options, scores.size)
            try:
                while not generation.finish_reason:
                    token = sampler.next_token(scores, constraint.allowed(scores.size) if constraint is not None else None)
                    piece = self._take(token, text, generation, room, start)
                    if piece:
                        yield piece
                    if generation.finish_reason:
                        return
                    if constraint is not None:
                        constraint.took(token)
                    scores = steps.scores_behind(token)
            finally:
                steps.end()
                generation.guessed_tokens, generation.accepted_tokens = steps.guessed, steps.accepted
        except GeneratorExit:
            raise
        except BaseException:
            cached.forget()  # a run may have failed in the middle of a step
            raise
        finally:
            self._give_back(cached)

    def _take(self, token: int, text: StopTexts, generation: Generation, room: int, start: float) -> str:
        """Add a token to a generation that began at `start`; the text that can be given now."""
        generation.tokens.append(token)
        generation.seconds = time.perf_counter() - start
        generation.first_token_s = generation.first_token_s or generation.seconds
        piece, generation.finish_reason = text.push(token, token in self.end_tokens)
        if not generation.finish_reason and len(generation.tokens) >= room:
            generation.finish_reason = "length"
            piece += text.rest()
        generation.text += piece
        return piece

    def _steps(self, cached: CachedText, options: SearchOptions, words: int) -> Speculation:
        """What runs the decoder behind the prompt."""
        count = options.guesses if cached.decoder.can_rewind else 0
        propose: Proposer = self.draft if self.draft is not None else from_the_text
        return Speculation(cached.decoder, cached.tokens, propose, count, self.max_length, words)

    def _constraint(self, options: SearchOptions) -> Any:
        if not options.constrained:
            return None
        from intarsia.generation.constraints import Constraint

        return Constraint(options, self._tokenizer("a grammar"), self.end_tokens)


def _is_one(prompt: Any) -> bool:
    """Whether it is one prompt, not several. Raises WrongType for what is neither."""
    if not isinstance(prompt, (str, list, tuple, np.ndarray)):
        raise WrongType(f"the prompt: expected a text, a list of tokens, or a list of these, got {type(prompt).__name__}")
    return isinstance(prompt, str) or (len(prompt) > 0 and not isinstance(prompt[0], (str, list, tuple, np.ndarray)))
