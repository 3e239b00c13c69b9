"""The two trainings, by TRL's trainers on a PEFT adapter: supervised (distillation, SFT against confession) and KTO.

Both are left to the libraries; here are the settings, the progress, a clean stop, and an adapter folder that is written whole. KTO's
reference is the adapter that it starts from (TRL keeps a frozen copy), not the base.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..display import Display
from ..errors import ConfigError, RunError
from ..files import sync
from .recipe import LoraRecipe

if TYPE_CHECKING:
    from ..policy.network import PolicyNetwork

__all__ = ["Training", "kto_weights", "train_kto", "train_sft", "trl"]

Row = Mapping[str, Any]


@dataclass(slots=True)
class Training:
    """One training: `start` is the base or the adapter to go on from, `out` the adapter folder to write."""

    base: Path
    start: Path
    out: Path
    lora: LoraRecipe
    random_seed: int
    display: Display
    title: str
    stop: threading.Event = field(default_factory=threading.Event)
    """Set from outside to end the training after the running update, without writing anything."""


def trl() -> Any:
    """TRL, imported when it is needed. ConfigError says how to get it."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        found: Any = import_module("trl")
        for name in ("SFTTrainer", "KTOTrainer"):
            getattr(found, name)  # TRL loads its trainers on first use
    except (ImportError, AttributeError, RuntimeError) as error:
        raise ConfigError(f"organisms are trained with TRL, which can't be imported ({error}); pip install 'auditrl[organisms]'") from None
    return found


def train_sft(rows: Sequence[Row], training: Training) -> dict[str, float]:
    """Supervised training on completions only. `rows`: `prompt` and `completion` (chat messages). Returns steps, examples and last loss.

    Raises:
        ConfigError: The model can't be opened.
        RunError: The adapter can't be written.
    """
    lora = training.lora
    return _train("SFT", rows, training, epochs=lora.epochs, rate=lora.learning_rate, completion_only_loss=True, max_length=lora.max_length)


def train_kto(rows: Sequence[Row], training: Training) -> dict[str, float]:
    """KTO (Ethayarajh et al. 2024). `rows`: `prompt`, `completion` and `label` (True: wanted). Returns steps, examples and last loss.

    Raises:
        ConfigError: All labels are the same, or the model can't be opened.
        RunError: The adapter can't be written.
    """
    lora = training.lora
    wanted, unwanted = kto_weights([bool(row["label"]) for row in rows])
    return _train(
        "KTO", rows, training, epochs=lora.kto_epochs, rate=lora.kto_learning_rate, beta=lora.kto_beta,
        desirable_weight=wanted, undesirable_weight=unwanted, max_length=lora.max_length,
    )  # fmt: skip


def kto_weights(labels: Sequence[bool]) -> tuple[float, float]:
    """Weights of wanted and unwanted examples that give both the same total (KTO paper, section 4.2). ConfigError if one kind is missing."""
    wanted = sum(labels)
    unwanted = len(labels) - wanted
    if not wanted or not unwanted:
        raise ConfigError(
            f"KTO needs wanted and unwanted answers, and all {len(labels)} are {'wanted' if wanted else 'unwanted'}; "
            "raise --interrogations, or use --against sft or none, with another --out FOLDER"
        )
    return max(1.0, unwanted / wanted), max(1.0, wanted / unwanted)


def _train(kind: str, rows: Sequence[Row], training: Training, *, epochs: float, rate: float, **settings: Any) -> dict[str, float]:
    from transformers import PrinterCallback

    library = trl()
    datasets: Any = import_module("datasets")
    with _bars_off(datasets), tempfile.TemporaryDirectory() as scratch:
        network, tokenizer = _opened(training)
        examples: Any = datasets.Dataset.from_list([dict(row) for row in rows]).shuffle(seed=training.random_seed)
        on_gpu = network.device.type == "cuda"
        arguments: Any = getattr(library, f"{kind}Config")(
            output_dir=scratch,
            per_device_train_batch_size=min(training.lora.batch, len(rows)),
            num_train_epochs=epochs,
            learning_rate=training.lora.scaled(rate, int(network.config.hidden_size)),
            lr_scheduler_type="cosine",
            warmup_steps=5,
            seed=training.random_seed,
            data_seed=training.random_seed,
            use_cpu=not on_gpu,
            bf16=on_gpu,
            gradient_checkpointing=on_gpu,
            save_strategy="no",
            logging_steps=5,
            report_to="none",
            disable_tqdm=True,
            **settings,
        )
        trainer: Any = getattr(library, f"{kind}Trainer")(
            model=network.model, args=arguments, train_dataset=examples, processing_class=tokenizer
        )
        trainer.remove_callback(PrinterCallback)
        watch = _watch(training)
        trainer.add_callback(watch)
        trainer.train()
    training.display.finish()
    if not training.stop.is_set():
        _save(network, tokenizer, training.out)
    return {"examples": float(len(rows)), "steps": float(trainer.state.global_step), "loss": float(watch.loss)}


def _opened(training: Training) -> tuple[PolicyNetwork, Any]:
    from transformers import AutoTokenizer

    from ..policy.network import LoraSettings, load_network

    network = load_network(
        training.start,
        method="lora",
        lora=LoraSettings(rank=training.lora.rank, alpha=training.lora.alpha),
        dtype="auto",
        device="auto",
        gradient_checkpointing=False,
        seed=training.random_seed,
    )
    tokenizers: Any = AutoTokenizer
    tokenizer = tokenizers.from_pretrained(str(training.base))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return network, tokenizer


def _watch(training: Training) -> Any:
    """Shows progress and ends the training when it is told to."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        loss = float("nan")

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.display.start(training.title, int(state.max_steps))

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            self.loss = float((logs or {}).get("loss", self.loss))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.display.advance(f"loss {self.loss:.3f}" if self.loss == self.loss else "")
            control.should_training_stop = control.should_training_stop or training.stop.is_set()

    return Watch()


@contextmanager
def _bars_off(datasets: Any) -> Generator[None]:
    """No progress bars and notices of the libraries: a training shows as one line of ours."""
    from ..policy.network import quiet

    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    loud = {name: logging.getLogger(name).level for name in ("trl", "transformers", "accelerate")}
    for name in loud:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with quiet(), warnings.catch_warnings():
            # renamed in transformers 5; TRL and older versions know the old name only
            warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)
            yield
    finally:
        for name, level in loud.items():
            logging.getLogger(name).setLevel(level)
        if shown:
            datasets.enable_progress_bars()


def _save(network: PolicyNetwork, tokenizer: Any, folder: Path) -> None:
    """Write adapter and tokenizer into a sibling folder and rename it: a kill leaves no half adapter under the final name."""

    def write(part: Path) -> None:
        # "auto" would ask the model hub whether the vocabulary was resized; KTO's frozen copy stays out
        network.model.save_pretrained(str(part), save_embedding_layers=False, selected_adapters=["default"])
        tokenizer.save_pretrained(str(part))

    write_folder(folder, write)


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a sibling folder, sync it and rename it. RunError if it can't be written."""
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write(part)
        for path in [*part.rglob("*"), part]:
            sync(path)
        part.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise RunError(
            f"{folder}: can't be written ({error}). Free space or mend the permissions, then run the same command again"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
