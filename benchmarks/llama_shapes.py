"""Sizes of Llama 3 models, and the operations and bytes that updating and decoding them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import LlamaConfig


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama: hidden size, layers, heads, heads of keys and values, inner size, vocabulary, shared embedding."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    tied: bool

    def config(self, **changes: Any) -> LlamaConfig:
        """As `transformers` takes it."""
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            intermediate_size=self.inner,
            tie_word_embeddings=self.tied,
            **changes,
        )

    @property
    def linear(self) -> int:
        """Weights of the layers' matrices."""
        head = self.hidden // self.heads
        attention = 2 * self.hidden * self.heads * head + 2 * self.hidden * self.kv_heads * head
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def output(self) -> int:
        """Weights of the output layer."""
        return self.hidden * self.vocabulary

    def attention(self, queries: int, keys: float) -> float:
        """Operations of attention, forward, over all layers: each query with `keys` keys on average."""
        return 4.0 * queries * keys * self.hidden * self.layers

    def update_operations(self, rows: int, length: int, adapter: int) -> float:
        """Forward and backward of an update in which half of the tokens are trained on and `adapter` weights are.

        The other weights are frozen, so the backward pass of their matrices costs as much as the forward pass, not twice as much.
        """
        tokens = rows * length
        matrices = 4.0 * self.linear * tokens + 4.0 * self.output * tokens / 2 + 6.0 * adapter * tokens
        return matrices + 3 * rows * self.attention(length, length / 2)

    def decode_operations(self, rows: int, prompt: int, new: int, adapter: int) -> float:
        """Of `new` tokens a row, after the prompt."""
        return rows * new * 2.0 * (self.linear + self.output + adapter) + rows * self.attention(new, prompt + new / 2)

    def decode_bytes(self, rows: int, context: float, width: int) -> float:
        """What one decoding step must read: the weights, and the keys and values of `context` tokens a row. `width` bytes a number."""
        cache = 2.0 * self.layers * self.kv_heads * (self.hidden // self.heads)
        return width * (self.linear + self.output + rows * context * cache)


SHAPES = {
    "1B": Shape("1B", 2048, 16, 32, 8, 8192, 128_256, True),
    "3B": Shape("3B", 3072, 28, 24, 8, 8192, 128_256, True),
    "8B": Shape("8B", 4096, 32, 32, 8, 14_336, 128_256, False),
}
TINY = Shape("tiny", 64, 2, 4, 2, 128, 512, True)
