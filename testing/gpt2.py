"""GPT-2 by its formulas, one head after the other, as a function of a state dict with the names of transformers' GPT2LMHeadModel: for
tests that compare with it where transformers is not installed."""
import math

import torch


def random_state(vocab, positions, width, layers, inner=None, tied=True):
    """Every value random, also those of biases and layer norms, which start as 0 and 1."""
    inner = inner or 4 * width
    shapes = {"transformer.wte.weight": (vocab, width), "transformer.wpe.weight": (positions, width)}
    for layer in range(layers):
        block = f"transformer.h.{layer}."
        for name, sizes in {"ln_1": (width,), "attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width),
                            "ln_2": (width,), "mlp.c_fc": (width, inner), "mlp.c_proj": (inner, width)}.items():
            shapes[block + name + ".weight"] = sizes
            shapes[block + name + ".bias"] = sizes[-1:]
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (width,)
    if not tied:
        shapes["lm_head.weight"] = (vocab, width)
    return {name: torch.randn(sizes) / math.sqrt(sizes[0]) for name, sizes in shapes.items()}


def layer_norm(x, state, name, epsilon):
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred ** 2).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + epsilon) * state[name + ".weight"] + state[name + ".bias"]


def conv1d(x, state, name):
    return x @ state[name + ".weight"] + state[name + ".bias"]


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attention(x, state, name, heads):
    length, width = x.shape[1:]
    size = width // heads
    query, key, value = conv1d(x, state, name + ".c_attn").split(width, dim=-1)
    is_future = torch.ones(length, length, dtype=torch.bool).triu(1)
    outputs = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = query[..., part] @ key[..., part].transpose(1, 2) / math.sqrt(size)
        outputs.append(torch.softmax(scores.masked_fill(is_future, -math.inf), -1) @ value[..., part])
    return conv1d(torch.cat(outputs, -1), state, name + ".c_proj")


def logits(state, tokens, layers, heads, epsilon=1e-5):
    embedding = state["transformer.wte.weight"]
    x = embedding[tokens] + state["transformer.wpe.weight"][:tokens.shape[1]]
    for layer in range(layers):
        block = f"transformer.h.{layer}."
        x = x + attention(layer_norm(x, state, block + "ln_1", epsilon), state, block + "attn", heads)
        hidden = gelu_new(conv1d(layer_norm(x, state, block + "ln_2", epsilon), state, block + "mlp.c_fc"))
        x = x + conv1d(hidden, state, block + "mlp.c_proj")
    return layer_norm(x, state, "transformer.ln_f", epsilon) @ state.get("lm_head.weight", embedding).T


def loss(outputs, targets, ignored):
    """The mean of -log softmax(outputs)[target] over the targets that are not ignored."""
    counted = targets != ignored
    log_p = outputs - torch.logsumexp(outputs, -1, keepdim=True)
    return -log_p[counted].gather(-1, targets[counted].unsqueeze(-1)).mean()
