"""GPT-2 with the names and layouts of its files: config.json and model.safetensors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from plait.safetensors import load_file, save_file

Cache = list[tuple[Tensor, Tensor]]  # keys and values [B, heads, T, size] of each block


@dataclass
class Config:
    """The sizes, under the names that config.json has for them."""

    vocab_size: int
    n_positions: int = 128
    n_embd: int = 128
    n_layer: int = 3
    n_head: int = 4


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as in GPT-2's files."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(plait.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(plait.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads = c.n_head
        self.c_attn, self.c_proj = Conv1D(c.n_embd, 3 * c.n_embd), Conv1D(c.n_embd, c.n_embd)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = (p.unflatten(2, (self.heads, -1)).transpose(1, 2) for p in self.c_attn(x).chunk(3, dim=2))
        if past is not None:
            k, v = plait.cat([past[0], k], dim=2), plait.cat([past[1], v], dim=2)
        # With a past there is one new token, and it sees all.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.c_proj(y.transpose(1, 2).flatten(2)), (k, v)


class MLP(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(c.n_embd, 4 * c.n_embd), Conv1D(4 * c.n_embd, c.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(c.n_embd), Attention(c)
        self.ln_2, self.mlp = nn.LayerNorm(c.n_embd), MLP(c)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        seen, present = self.attn(self.ln_1(x), past)
        x = x + seen
        return x + self.mlp(self.ln_2(x)), present


class GPT2(nn.Module):
    """Scores [B, T, V] of what follows each token [B, T], and the keys and values to go on with."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.wte, self.wpe = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(c.n_positions, c.n_embd)
        self.h = nn.ModuleList(Block(c) for _ in range(c.n_layer))
        self.ln_f = nn.LayerNorm(c.n_embd)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        past = cache[0][0].shape[2] if cache else 0
        places = plait.arange(past, past + tokens.shape[1], device=tokens.device)
        x, presents = self.wte(tokens) + self.wpe(places), []
        for i, block in enumerate(self.h):
            x, present = block(x, cache[i] if cache else None)
            presents.append(present)
        return self.ln_f(x) @ self.wte.weight.T, presents  # the embedding gives the scores too

    def save(self, folder: Path) -> None:
        save_file(self.state_dict(), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(asdict(self.config), indent=2))

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> GPT2:
        """Returns the model of a folder. Keys of other files may begin with "transformer.", and masks may be there."""
        sizes = json.loads((folder / "config.json").read_text())
        with plait.device("meta"):  # without memory: the tensors come from the file
            model = cls(Config(**{name: sizes[name] for name in Config.__dataclass_fields__}))
        state = {k.removeprefix("transformer."): v for k, v in load_file(folder / "model.safetensors", device).items()}
        state = {
            k: v for k, v in state.items() if not k.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight"))
        }
        model.load_state_dict(state, assign=True)
        return model.eval()
