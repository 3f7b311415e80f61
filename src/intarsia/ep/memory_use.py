"""What programs hold in memory."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class PlanMemory:
    """What runs on inputs of certain shapes need.

    Attributes:
        shapes: of the inputs, as text.
        arena_nbytes: the intermediate tensors of one run, those alive at the same time apart, workspace included.
        workspace_nbytes: of it, what the kernel needs that needs most.
        output_nbytes: new memory of one run that its caller gets (outputs), that lies between segments, or that
            holds values that depend on sizes alone.
        blocks, idle: arenas that exist (one for each run that went on at the same time), and those not in use.
        unknown: segments whose sizes depend on data, which are not in these numbers.
    """

    shapes: str
    arena_nbytes: int
    workspace_nbytes: int
    output_nbytes: int
    blocks: int = 0
    idle: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class ProgramMemory:
    """What a program holds.

    Attributes:
        mapped_nbytes: weights that are pages of the model's file, which the system drops when it needs the memory.
        shared_nbytes: weights that lie in the model's bytes as they were given, or read from a small file.
        packed_nbytes: weights in memory of the program's own: packed for kernels, or computed from others.
        plans: by the shapes of the inputs.
        values_nbytes: values that depend on sizes alone, kept between runs with the same sizes.
    """

    mapped_nbytes: int
    shared_nbytes: int
    packed_nbytes: int
    plans: Sequence[PlanMemory] = ()
    values_nbytes: int = 0
