"""The `tsrun` command: serve an artifact, answer one prompt, or measure.

Modules that take long to import are imported where they are used: `--help` is instant, and the
ranks load while this process imports the server.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import click
from click.core import ParameterSource

from tskernels.errors import TsError

if TYPE_CHECKING:
    from tsruntime.server.frontend import Engine
    from tsruntime.server.intake import Intake

Job: TypeAlias = "Callable[[Engine, Intake], int]"

_GRACE_SECONDS: Final = 1.0
"""For the ranks to end by themselves; nothing is in flight by then, so that force does no harm."""

_TRUST: Final = "Run the native code of kernel packs with this digest; may be given several times."

_SERVING: Final = ("host", "port", "served_model_name")
_BENCH: Final = ("streams", "prompt_tokens", "tokens", "as_json")


@dataclass(frozen=True, slots=True)
class _Start:
    """What ranks are started with: the artifact, and digests of kernel packs to trust."""

    artifact: Path
    trusted: tuple[str, ...]


def _digests(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> object:
    """Whole digests: the beginning of one would name libraries that nobody has looked at."""
    for digest in given:
        if re.fullmatch("[0-9a-f]{64}", digest) is None:
            raise click.BadParameter(f"{digest!r} is no SHA-256 of 64 hexadecimal digits")
    return given


@click.command(context_settings={"max_content_width": 100})
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--trust-pack", "trusted", multiple=True, callback=_digests, metavar="SHA256", help=_TRUST
)
@click.option("--served-model-name", help="The model's name in the API. Default: the recipe's.")
@click.option("--prompt", help="Answer this on standard output instead of serving.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without chat template.")
@click.option("--max-tokens", type=click.IntRange(1), help="Default: the rest of the context.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True))
@click.option("--top-k", type=click.IntRange(-1), help="0 and -1 keep every token.")
@click.option("--min-p", type=click.FloatRange(0, 1))
@click.option("--seed", type=click.IntRange(-(2**63), 2**63 - 1))
@click.option("--repetition-penalty", type=click.FloatRange(0.01, 100))
@click.option("--presence-penalty", type=click.FloatRange(-2, 2))
@click.option("--frequency-penalty", type=click.FloatRange(-2, 2))
@click.option("--stop", multiple=True, help="Text to stop at; may be given several times.")
@click.option("--bench", is_flag=True, help="Measure throughput and latencies instead of serving.")
@click.option("--streams", type=click.IntRange(1), default=1, show_default=True)
@click.option("--prompt-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@click.version_option(package_name="tscompile")
def main(
    artifact: Path,
    host: str,
    port: int,
    trusted: tuple[str, ...],
    served_model_name: str | None,
    prompt: str | None,
    raw: bool,
    bench: bool,
    streams: int,
    prompt_tokens: int,
    tokens: int,
    as_json: bool,
    **sampling: object,
) -> None:
    """Serve ARTIFACT over the OpenAI API, answer one --prompt, or --bench it.

    Exit codes: 0 done (also after SIGINT or SIGTERM, once requests in flight are answered),
    1 failure, 2 usage, 128 + signal where a second signal cut requests off.
    """
    _check_options(prompt is not None, bench, tuple(sampling))
    started = _Start(artifact, trusted)
    try:
        if prompt is not None:
            code = _run(started, None, _prompt_job(prompt, raw, sampling))
        elif bench:
            code = _run(started, None, _bench_job(streams, prompt_tokens, tokens, as_json))
        else:
            code = _serve(started, host, port, served_model_name)
    except TsError as error:
        click.echo(str(error), err=True)
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _check_options(prompt: bool, bench: bool, sampling: tuple[str, ...]) -> None:
    """Refuse options that the chosen mode would ignore."""
    if prompt and bench:
        raise click.UsageError("--prompt and --bench exclude each other")
    mode = "--prompt" if prompt else "--bench" if bench else "serving"
    context = click.get_current_context()
    for reader, names in (
        ("serving", _SERVING),
        ("--prompt", ("raw", *sampling)),
        ("--bench", _BENCH),
    ):
        for name in names:
            given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if given and mode != reader:
                flag = "--json" if name == "as_json" else "--" + name.replace("_", "-")
                raise click.UsageError(f"{flag} goes with {reader}, not with {mode}")


def _serve(started: _Start, host: str, port: int, served_name: str | None) -> int:
    from tsruntime.server.listen import bind  # see the module's docstring

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_before_serving)

    with bind(host, port) as sock:

        def job(engine: Engine, intake: Intake) -> int:
            from tsruntime.server.serve import serve

            return serve(engine, intake, sock, host)

        return _run(started, served_name, job)


def _end_before_serving(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing is in flight before the event loop takes over the signals: end, and well."""
    raise SystemExit(0)


def _prompt_job(text: str, raw: bool, sampling: dict[str, object]) -> Job:
    options = {name: value for name, value in sampling.items() if value not in (None, ())}

    def job(engine: Engine, intake: Intake) -> int:
        from tsruntime.server.prompt import run_prompt

        run_prompt(engine, intake, text, raw=raw, options=options)
        return 0

    return job


def _bench_job(streams: int, prompt_tokens: int, tokens: int, as_json: bool) -> Job:
    def job(engine: Engine, intake: Intake) -> int:
        from tsruntime.bench import Load, run_bench

        run_bench(engine, intake, Load(streams, prompt_tokens, tokens), as_json=as_json)
        return 0

    return job


def _run(started: _Start, served_name: str | None, job: Job) -> int:
    """Launch the ranks, do `job` with them, and end them."""
    from tsruntime.workers.launch import launch

    engine = launch(started.artifact, started.trusted)
    code = 1
    try:
        from tsruntime.server.loading import load_intake  # while the ranks load

        code = job(engine, load_intake(started.artifact, served_name))
    finally:
        engine.stop(_GRACE_SECONDS if code == 0 else 0.0)
    return code
