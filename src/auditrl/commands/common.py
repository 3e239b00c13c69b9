"""Options that several commands share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import click

from ..config import ModelConfig, packaged_config
from ..display import Display, make_display
from ..errors import EXIT_INTERRUPTED, ConfigError

EXTRA: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Context settings of commands that take dotted overrides."""


def display_option[F: Callable[..., Any]](command: F) -> F:
    """`--display rich|plain|none`."""
    return click.option(
        "--display",
        "display_mode",
        type=click.Choice(["auto", "rich", "plain", "none"]),
        default="auto",
        show_default=True,
        help="How progress is shown.",
    )(command)


def overrides(args: Sequence[str]) -> list[tuple[str, str]]:
    """Dotted overrides from what click left over: `--reward.order both` or `--reward.order=both`."""
    pairs: list[tuple[str, str]] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        key, eq, value = word[2:].partition("=")
        if not word.startswith("--") or not key:
            raise ConfigError(f"unexpected argument {word!r}; overrides are written --section.key value")
        if not eq:
            if not rest:
                raise ConfigError(f"--{key}: a value is missing; write --{key} value")
            value = rest.pop(0)
        pairs.append((key, value))
    return pairs


def run_async(work: Coroutine[Any, Any, None], display: Display, stopped: str) -> None:
    """Run to the end. Ctrl-C ends it with a line that says what is saved, and exit code 130."""
    try:
        asyncio.run(work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.finish()
        click.echo(f"\nauditrl: interrupted. {stopped}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        display.finish()
        raise


def model_option(text: str, key: str) -> ModelConfig:
    """`provider/name`, or `provider/name{"arg": value}` with the provider's arguments as JSON."""
    name, brace, rest = text.partition("{")
    try:
        args: Any = json.loads(brace + rest) if brace else {}
    except ValueError as error:
        raise ConfigError(f"{key} {text!r}: the arguments behind the name are not JSON ({error})") from None
    return ModelConfig(model=name.strip(), args=args)


def find_config(path: Path) -> Path:
    """The file itself, or the packaged config of that name: `quickstart`, `paper/binary-0-single`, also with `configs/` and `.toml`."""
    packaged = packaged_config(str(path).removesuffix(".toml").removeprefix("configs/"))
    return packaged if not path.exists() and packaged.is_file() else path


def show(mode: str) -> Display:
    """The display for `--display`."""
    return make_display(mode)  # type: ignore[arg-type]


def runs_option[F: Callable[..., Any]](command: F) -> F:
    """`--runs DIR`."""
    return click.option(
        "--runs", "root", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of the runs."
    )(command)
