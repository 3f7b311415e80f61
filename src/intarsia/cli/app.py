"""The commands, with the options that several share."""

from __future__ import annotations

import functools
import json
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from intarsia.cli import (
    bench,
    cache,
    check,
    convert,
    debug,
    doctor,
    dump,
    execute_program,
    explain,
    generate,
    profile,
    providers,
    run,
)
from intarsia.cli.command_help import Command, Group, ProgramCommand
from intarsia.cli.detections.suppress import Limits
from intarsia.cli.inputs.feeds import FeedOptions, parse_dims
from intarsia.cli.inputs.pictures import FITS, PRESETS
from intarsia.cli.interrupt import interruptible
from intarsia.cli.show import errors, print_json
from intarsia.errors import IntarsiaError, InvalidArgument, InvalidGraph, InvalidProtobuf
from intarsia.providers.fallback import ProviderWarning

FAILED, MISUSED, INCOMPLETE = 1, 2, 4

EPILOG = (
    "Exit codes: 0 done; 1 the model, a provider or a run failed; 2 the command was not understood; "
    "3 the extra 'cli' is missing; 4 nodes were not converted; 130 Ctrl-C. With --json, errors are JSON on standard output."
)

app = typer.Typer(
    name="intarsia",
    cls=Group,
    help="Run ONNX models on whatever hardware is there, and see how.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

command = functools.partial(app.command, cls=Command)

Model = Annotated[Path, typer.Argument(help="An ONNX file.", show_default=False)]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        "--providers",
        "-p",
        metavar="NAME",
        help="Execution provider, such as cpu or CUDAExecutionProvider; in order of priority, repeated or separated by commas.",
        show_default="CPU",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FORM",
        help="NAME=FORM. Forms: FILE.npy, FILE.npz[:KEY], a picture, @random[:LOW:HIGH], @zeros, @ones, a JSON literal. "
        "A model with one input needs no NAME; FILE.npz alone gives every input it has an array for. Several for one input, a "
        "folder or a 'pattern*.jpg' are a batch. Default: @random.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", "-d", metavar="NAME=SIZE",
        help="Size of a dimension, e.g. batch=2. Default: of inputs that are given, else a usual one.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=SIZES", help="All sizes of an input: NAME=1x3x640x640; ? leaves one open."),
]
Preset = Annotated[str, typer.Option(help=f"How pictures become numbers: {', '.join(PRESETS)}. Default: as the model says.")]
FixedDims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", "-d", help="Size of a symbolic dimension, e.g. batch=2. Others vary, where the form has sizes that vary."
    ),
]


def _register_operators(sources: list[str] | None) -> list[str] | None:
    if sources:
        from intarsia.custom_ops.library import records_of
        from intarsia.ops.framework.registry_scopes import PROCESS

        for source in sources:
            PROCESS.add(records_of(source))
    return sources


Operators = Annotated[
    list[str] | None,
    typer.Option(
        "--operators", callback=_register_operators, help="A Python file or module with operators of your own; may be repeated."
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A session configuration entry: session.arithmetic=bfloat16."),
]
Wide = Annotated[bool, typer.Option("--wide", help="Do not shorten names to the terminal's width.")]
Seed = Annotated[int, typer.Option(help="Seed of random inputs.")]
Threads = Annotated[int, typer.Option("--threads", "-t", min=0, help="Threads of one run; 0: as many as there are cores.")]


def _version(wanted: bool) -> None:
    if wanted:
        import intarsia

        print(f"intarsia {intarsia.__version__}")
        raise typer.Exit


@app.callback()
def configure(
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Print the log; -vv: its details.")] = 0,
    _version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Set up the log."""
    if verbose:
        level = logging.INFO if verbose == 1 else logging.DEBUG
        logging.basicConfig(level=level, format="%(levelname).1s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("intarsia").setLevel(level)


def _numbers(text: str, option: str) -> tuple[float, ...] | None:
    if not text:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"{option} expects numbers separated by commas; got {text!r}") from None


def _feed_options(
    dims: list[str] | None, shapes: list[str] | None, seed: int = 0, preset: str = "", pictures: dict[str, Any] | None = None
) -> FeedOptions:
    return FeedOptions(parse_dims(dims or []), seed, shapes or [], preset, pictures or {})


@command("run")
def run_model(
    model: Model,
    inputs: Inputs = None,
    provider: Providers = None,
    dim: Dims = None,
    shape: Shapes = None,
    top: Annotated[int, typer.Option("--top", "-k", min=0, help="Show the K largest values along the last axis.")] = 0,
    labels: Annotated[Path | None, typer.Option(help="Names for --top: a text file with one a line, or a JSON list.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write outputs: FILE.npz, or a folder of .npy.")] = None,
    threads: Threads = 0,
    seed: Seed = 0,
    preset: Preset = "",
    mean: Annotated[str, typer.Option(help="Pictures become (pixel / 255 - mean) / std; one number or one per channel.")] = "",
    std: Annotated[str, typer.Option(help="See --mean.")] = "",
    fit: Annotated[str, typer.Option(help=f"How pictures get the input's size: {', '.join(FITS)}.")] = "",
    bgr: Annotated[bool | None, typer.Option("--bgr/--rgb", help="Which channel of a picture is first.")] = None,
    draw: Annotated[
        Path | None, typer.Option(help="Draw what a detector found into a copy of the picture; a folder for several.")
    ] = None,
    score: Annotated[float, typer.Option(min=0, max=1, help="With --draw: the least score of what counts.")] = 0.25,
    iou: Annotated[float, typer.Option(min=0, max=1, help="With --draw: how far two boxes of a class may overlap.")] = 0.45,
    operators: Operators = None,
    config: Config = None,
    untrusted: Annotated[
        bool, typer.Option(help="The model is a stranger's: strict checks, no files or machine code of its, and limits.")
    ] = False,
    process: Annotated[bool, typer.Option("--process", help="With --untrusted: in a separate process.")] = False,
) -> None:
    """Run a model once and print its outputs.

    Examples:

    `intarsia run model.onnx` runs on random input

    `intarsia run net.onnx -i photo.jpg --top 5 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225`

    `intarsia run yolo.onnx -i street.jpg --draw found.jpg`

    `intarsia run bert.onnx -i 'input_ids=[[101, 2023, 102]]' -i attention_mask=@ones -d seq=3 -o out.npz`

    `intarsia run found.onnx --untrusted --process --config untrusted.seconds=5`
    """
    entries = [*(config or []), *(["untrusted.process=1"] if process else [])]
    pictures = {"mean": _numbers(mean, "--mean"), "std": _numbers(std, "--std"), "fit": fit or None, "bgr": bgr}
    feed_options = _feed_options(dim, shape, seed, preset, pictures)
    show = run.OutputOptions(top, labels, output, draw, Limits(score, iou))
    run.run_model(model, inputs or [], _names(provider), feed_options, threads, show, entries, untrusted=untrusted)


@command("explain")
def explain_model(
    model: Model,
    provider: Providers = None,
    operators: Operators = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page to this file.")] = None,
    wide: Wide = False,
    top: Annotated[int, typer.Option("--top", "-k", min=0, help="Rows of the table; 0: all.")] = 0,
    config: Config = None,
) -> None:
    """Say which provider runs each node, and why each other refused it.

    Examples:

    `intarsia explain model.onnx`

    `intarsia explain model.onnx -p OpenVINOExecutionProvider -p CPUExecutionProvider --json`

    `intarsia explain model.onnx --html placement.html`
    """
    explain.explain_model(model, _names(provider), as_json, html, config or [], wide=wide, top=top)


@command("check")
def check_model(
    model: Model,
    operators: Operators = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List everything that keeps a model from running, without loading its weights; exit code 1 where there is anything.

    Examples:

    `intarsia check model.onnx`

    `intarsia check model.onnx --operators my_operators.py --json`
    """
    if not check.check_file(model, as_json):
        raise typer.Exit(FAILED)


@command("bench")
def bench_model(
    model: Model,
    inputs: Inputs = None,
    provider: Providers = None,
    dim: Dims = None,
    shape: Shapes = None,
    threads: Threads = 0,
    compare: Annotated[
        str, typer.Option(help="Other runtimes, separated by commas: onnxruntime, openvino, opencv, emx-onnx-cgen.")
    ] = "",
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, help="Timed runs of each runtime.")] = 200,
    seconds: Annotated[float, typer.Option(min=0.1, help="Stop after about so long.")] = 30.0,
    seed: Seed = 0,
    preset: Preset = "",
    operators: Operators = None,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="Measure what this machine can do at most, and compare.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=0, help="Count runs a second by so many threads that call at once, too.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: Config = None,
) -> None:
    """Time a model, beside other runtimes on request, in turn in one process.

    Examples:

    `intarsia bench model.onnx --threads 2`

    `intarsia bench bert.onnx -d batch=1 -d seq=128 --compare onnxruntime,openvino`

    `intarsia bench bert.onnx --roofline --config session.arithmetic=bfloat16`

    `intarsia bench model.onnx -t 1 -c 8 --compare onnxruntime --json`
    """
    names = [name.strip() for name in compare.split(",") if name.strip()]
    effort = bench.Effort(runs, seconds, roofline, concurrency, config or [])
    where = bench.Where(_names(provider), threads, names, as_json)
    bench.bench_model(model, inputs or [], _feed_options(dim, shape, seed, preset), where, effort)


BOTH = "CPUExecutionProvider,ReferenceExecutionProvider"
Rtol = Annotated[float, typer.Option(min=0, help="Tolerance relative to a tensor's largest magnitude.")]
Atol = Annotated[float, typer.Option(min=0, help="Absolute tolerance.")]
Pair = Annotated[str, typer.Option("--providers", "-p", help="Two, separated by a comma; the second is taken to be right.")]


@command("compare")
def compare_model(
    model: Model,
    other: Annotated[
        Path | None,
        typer.Argument(help="Another model, or saved outputs: an .npz, a folder of .npy or output_N.pb.", show_default=False),
    ] = None,
    inputs: Inputs = None,
    provider: Annotated[
        str, typer.Option("--providers", "-p", help="Two, separated by a comma, of which the second is right; with OTHER any.")
    ] = "",
    dim: Dims = None,
    shape: Shapes = None,
    seed: Seed = 0,
    preset: Preset = "",
    rtol: Rtol = 1e-4,
    atol: Atol = 1e-6,
    operators: Operators = None,
    config: Config = None,
) -> None:
    """Find the first node where two providers part, or compare outputs with another model's or saved ones; exit code 1 where
    they part.

    Examples:

    `intarsia compare model.onnx`

    `intarsia compare model.onnx int8.onnx -i x.npy --rtol 0.05`

    `intarsia compare model.onnx expected.npz -i in.npz`

    `intarsia compare model.onnx -p OpenVINOExecutionProvider,CPUExecutionProvider --rtol 1e-3 -d batch=4`
    """
    feed_options, tolerance = _feed_options(dim, shape, seed, preset), debug.Tolerance(rtol, atol)
    names = _names([provider or BOTH if other is None else provider or "cpu"])
    if other is not None:
        agree = debug.compare_with(model, other, inputs or [], names, feed_options, tolerance, config or [])
    else:
        agree = debug.compare(model, inputs or [], names, feed_options, tolerance, config or [])
    if not agree:
        raise typer.Exit(FAILED)


@command("reduce")
def reduce_model(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The smaller model; its inputs go to an .npz beside it.")],
    inputs: Inputs = None,
    provider: Pair = BOTH,
    dim: Dims = None,
    shape: Shapes = None,
    seed: Seed = 0,
    preset: Preset = "",
    rtol: Rtol = 1e-4,
    atol: Atol = 1e-6,
    operators: Operators = None,
    config: Config = None,
) -> None:
    """Write the smallest part of a model in which two providers part, with its inputs.

    Examples:

    `intarsia reduce model.onnx -o small.onnx -p OpenVINOExecutionProvider,CPUExecutionProvider`
    """
    feed_options = _feed_options(dim, shape, seed, preset)
    debug.reduce(model, inputs or [], _names([provider]), feed_options, debug.Tolerance(rtol, atol), output, config or [])


@command("profile")
def profile_model(
    model: Model,
    inputs: Inputs = None,
    provider: Providers = None,
    dim: Dims = None,
    shape: Shapes = None,
    threads: Threads = 0,
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, help="Timed runs.")] = 20,
    seed: Seed = 0,
    preset: Preset = "",
    top: Annotated[int, typer.Option("--top", "-k", min=0, help="Rows of each table; 0: all.")] = 15,
    depth: Annotated[int, typer.Option(min=0, help="Parts of the nodes' names that make a layer; 0: all but the last.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome/Perfetto trace of every run.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the graph with times as a page.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the profile to FILE.json, for --compare.")] = None,
    compare: Annotated[Path | None, typer.Option(help="A profile that was saved: say what changed since.")] = None,
    operators: Operators = None,
    wide: Wide = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: Config = None,
) -> None:
    """Say where the time of a run goes: by kernel, operator, layer and provider, copies separately. A saved profile (.json) may
    stand in the model's place.

    Examples:

    `intarsia profile model.onnx`

    `intarsia profile model.onnx --save before.json`, and later `intarsia profile model.onnx --compare before.json`

    `intarsia profile bert.onnx -d batch=1 -d seq=128 --depth 3 --trace trace.json --html times.html`
    """
    feed_options = _feed_options(dim, shape, seed, preset)
    show = profile.Shown(runs, top, depth, trace, html, as_json, wide, config or [], save, compare)
    profile.profile_model(model, inputs or [], _names(provider), feed_options, threads, show)


@command("dump")
def dump_model(
    model: Model,
    stage: Annotated[str, typer.Option("--stage", "-s", help=f"One of: {', '.join(dump.STAGES)}.")] = "optimized",
    provider: Providers = None,
    dim: Dims = None,
    shape: Shapes = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    operators: Operators = None,
    config: Config = None,
) -> None:
    """Print what a stage made of a model: the graph, its partition, kernels, generated source, the plan.

    Examples:

    `intarsia dump model.onnx --stage graph`

    `intarsia dump model.onnx --stage source -o kernels.ll`

    `intarsia dump model.onnx --stage plan --dim batch=8`
    """
    dump.dump_model(model, stage, _names(provider), _feed_options(dim, shape), output, config or [])


@command("convert")
def convert_model(
    model: Model,
    to: Annotated[str, typer.Option("--to", help=f"One of: {', '.join(convert.TARGETS)}.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="What to write; default: beside the model.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="KEY=VALUE of the target, e.g. half=1; may be repeated.")
    ] = None,
    dim: FixedDims = None,
    parts: Annotated[
        bool, typer.Option("--parts", help="Where not every node can be translated, write parts, the rest as ONNX.")
    ] = False,
    operators: Operators = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model in a vendor's form, and say what was translated, what not, and why.

    Exit codes: 0 the whole model was written in that form; 1 it failed and nothing was written; 2 the command was not
    understood; 4 some nodes have no place in that form: with --parts the parts were written, else nothing was.

    Examples:

    `intarsia convert model.onnx --to openvino -o model.xml`

    `intarsia convert net.onnx --to coreml -d batch=1 --option half=1 --parts`
    """
    if not convert.convert_model(model, to, output, option or [], parse_dims(dim or []), parts, as_json):
        raise typer.Exit(INCOMPLETE)


@app.command("quantize")
def quantize_model(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The quantised model.")],
    kind: Annotated[str, typer.Option(help="static, dynamic, weights, float16, bfloat16; default: static with data.")] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(help="A folder of pictures or arrays, .npz, .npy, .csv, .parquet, FILE.py:NAME, @random:COUNT; repeated."),
    ] = None,
    held_out: Annotated[
        list[str] | None, typer.Option(help="Data for measuring alone; default: the last third of --data.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Samples at most, taken evenly; 0: all.")] = 128,
    dim: Dims = None,
    shape: Shapes = None,
    activations: Annotated[str, typer.Option(help="uint8, int8, uint16, int16.")] = "uint8",
    weights: Annotated[str, typer.Option(help="int8, uint8, int16, int4, uint4.")] = "int8",
    per_tensor: Annotated[bool, typer.Option("--per-tensor", help="One scale for a weight, not one for a channel.")] = False,
    method: Annotated[
        str, typer.Option(help="How ranges are found: minmax, moving-average, percentile, entropy, mse, auto.")
    ] = "minmax",
    smooth_quant: Annotated[
        float | None, typer.Option(min=0, max=1, help="SmoothQuant: how much of outliers goes into weights, as 0.5.")
    ] = None,
    equalize: Annotated[bool, typer.Option("--equalize", help="Scale channels between layers to equal ranges.")] = False,
    bias_correction: Annotated[
        bool, typer.Option("--bias-correction", help="Let biases make up for rounded weights.")
    ] = False,
    operators_form: Annotated[bool, typer.Option("--operators-form", help="QLinear operators instead of pairs.")] = False,
    bits: Annotated[int, typer.Option(help="Of weights in blocks: 8, 4, 2.")] = 4,
    block: Annotated[int, typer.Option(help="Weights in a block.")] = 32,
    algorithm: Annotated[
        str, typer.Option(help="Of weights in blocks: nearest, hqq, k-quants, gptq (needs --data).")
    ] = "nearest",
    exclude: Annotated[list[str] | None, typer.Option(help="A node that stays as it is; repeated.")] = None,
    metric: Annotated[str, typer.Option(help="What is lost: error, cosine, top1, or FILE.py:FUNCTION.")] = "error",
    max_drop: Annotated[float | None, typer.Option(min=0, help="Leave layers in floats until no more is lost.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="For measuring layers one by one.")] = 60.0,
    provider: Providers = None,
    preset: Preset = "",
    report: Annotated[Path | None, typer.Option(help="Write the report: JSON, or a page where it ends in .html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Quantise a model, and say by layer what it costs; exit code 1 where more is lost than --max-drop.

    Examples:

    `intarsia quantize model.onnx -o small.onnx --data photos/ --preset imagenet`

    `intarsia quantize bert.onnx -o small.onnx --kind dynamic --held-out tokens.npz`

    `intarsia quantize net.onnx -o small.onnx --data x.npz --metric top1 --max-drop 0.01 --report report.json`
    """
    from intarsia.cli import quantize

    options = _feed_options(dim, shape, 0, preset)
    how = (
        quantize.Arithmetic(
            activations, weights, not per_tensor, method, operators_form, smooth_quant, equalize, bias_correction
        ),
        quantize.Blocks(bits, block, False, algorithm), exclude or [],
    )  # fmt: skip
    within_bound = quantize.quantize_model(
        model, output, kind, quantize.Data(data or [], held_out or [], samples, options), how,
        quantize.Bound(metric, max_drop, seconds),
        quantize.Shown(as_json, report, _names(provider) or ["CPUExecutionProvider"]),
    )  # fmt: skip
    if not within_bound:
        raise typer.Exit(FAILED)


def _names(given: list[str] | None) -> list[str]:
    """Provider names that were repeated, separated by commas, or both; `cpu` is short for CPUExecutionProvider, and so on."""
    return [providers.full_name(name) for item in given or [] for name in item.replace(",", " ").split()]


@app.command("exec", cls=ProgramCommand)
def execute(context: typer.Context) -> None:
    """Run a Python program whose `import onnxruntime` is Intarsia, unedited: a file, or a module after `-m`, and its arguments.

    Examples:

    `intarsia exec script.py --model model.onnx`

    `intarsia exec -m package.program --help`
    """
    execute_program.execute(context.args)


@command("providers")
def list_providers() -> None:
    """List the execution providers: what works here, and what is missing for the others."""
    providers.list_providers()


@command("doctor")
def examine(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Look at providers, packages, CPU, limits, cache and environment; exit code 1 where something keeps models from running.

    Examples:

    `intarsia doctor`

    `intarsia doctor --json`
    """
    if not doctor.examine(as_json):
        raise typer.Exit(FAILED)


app.add_typer(generate.app)
app.add_typer(cache.app, name="cache")


def _warned(others: Callable[..., None]) -> Callable[..., None]:
    """Warnings of providers as one line, where the log does not have them on the error stream."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **file: Any) -> None:
        if not issubclass(category, ProviderWarning):
            others(message, category, *where, **file)
        elif not logging.getLogger("intarsia").hasHandlers():
            errors.print(f"[yellow]warning:[/] {escape(str(message))}", soft_wrap=True)

    return show


def run_command(arguments: Sequence[str] | None) -> int:
    """Run one command; errors that Intarsia raises on purpose, and files that cannot be written, become one message.

    Returns the exit code.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in given
    try:
        with interruptible(), warnings.catch_warnings():
            warnings.simplefilter("always", ProviderWarning)
            warnings.showwarning = _warned(warnings.showwarning)
            result: Any = app(args=given, prog_name="intarsia", standalone_mode=not as_json)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else 0
    except IntarsiaError as error:
        return _fail(error, str(error), MISUSED if _is_misuse(error) else FAILED, as_json)
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(error, f"cannot open {str(error.filename)!r}: {error.strerror}", FAILED, as_json)
    except MemoryError as error:  # of NumPy, for sizes that were given
        return _fail(error, f"not enough memory: {error or 'give smaller sizes'}", FAILED, as_json)
    except Exception as error:
        if not _is_usage_error(error):
            raise
        message: Callable[[], str] = getattr(error, "format_message", error.__str__)
        return _fail(error, message(), MISUSED, as_json)
    return int(result or 0)


def _is_misuse(error: IntarsiaError) -> bool:
    """Whether the command is wrong, and not a model or a run that fails for the sizes and numbers it was given."""
    return isinstance(error, InvalidArgument) and not isinstance(error, (InvalidGraph, InvalidProtobuf))


def _is_usage_error(error: Exception) -> bool:
    """Whether it is typer's own error of a command line; which module its class is in differs between its versions."""
    return any(kind.__name__ == "UsageError" for kind in type(error).__mro__)


def _fail(error: Exception, message: str, code: int, as_json: bool) -> int:
    """Say what went wrong: to people on the error stream, to programs on the stream where they expect JSON."""
    if as_json:
        print_json(json.dumps({"error": {"type": type(error).__name__, "message": message, "exit_code": code}}, indent=1))
    else:
        errors.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return code
