#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model of examples/gpt in PyTorch, trained on the same weights and batches on the CPU.

Usage: reference.py FOLDER LOSSES [--steps N] [--double]

FOLDER is what `gpt --export FOLDER` has written: manifest.txt, the initial weights, the batches.
LOSSES receives a line for each step: its number and the loss of its batch before the update.
--double: in double, which shows how far float itself is away from the exact curve.

The model is written out in PyTorch's basic operations; derivatives, AdamW and clipping are
PyTorch's own. Nothing here comes from the program that it is compared with but the numbers.
"""
import argparse
import math
import pathlib
import time

import torch
import torch.nn.functional as F


class Export:
    """What the folder has: settings, initial weights by name, batches [steps, sequences, length]."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.settings, self.weights, self.batches = {}, {}, None
        lines = (self.folder / "manifest.txt").read_text().splitlines()
        if not lines or lines[0].split() != ["tutti-gpt-export", "1"]:
            raise SystemExit(f"{folder}/manifest.txt: not an export of version 1")
        for line in lines[1:]:
            words = line.split()
            if len(words) == 5 and words[0] == "parameter":
                shape = int(words[2]), int(words[3])
                self.weights[words[1]] = self._read(words[4], shape, torch.float32)
            elif len(words) == 5 and words[0] == "batches":
                shape = int(words[1]), int(words[2]), int(words[3])
                self.batches = self._read(words[4], shape, torch.int32)
            elif len(words) == 2:
                self.settings[words[0].replace("-", "_")] = words[1]
        if self.batches is None or not self.weights:
            raise SystemExit(f"{folder}/manifest.txt: no parameters or no batches")
        if self.number("experts", 0) or self.number("dropout", 0):
            raise SystemExit("reference.py: experts and dropout are not part of the comparison")

    def _read(self, name, shape, dtype):
        data = bytearray((self.folder / name).read_bytes())
        if len(data) != math.prod(shape) * 4:
            raise SystemExit(f"{self.folder}/{name}: {len(data)} bytes, not {math.prod(shape) * 4}")
        return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()

    def integer(self, key):
        return int(self.settings[key])

    def number(self, key, default=None):
        if key not in self.settings and default is not None:
            return default
        return float(self.settings[key])


class Model:
    """A decoder-only transformer; weights are [out x in], y = x W^T."""

    def __init__(self, export, dtype):
        self.layers = export.integer("layers")
        self.heads, self.kv_heads = export.integer("heads"), export.integer("kv_heads")
        self.size = export.integer("width") // self.heads
        self.context = export.integer("context")
        self.norm_kind = export.settings["norm"]
        self.activation = export.settings["activation"]
        self.eps = export.number("norm_eps")
        self.weights = {
            name: w.to(dtype).requires_grad_(True) for name, w in export.weights.items()
        }
        # Pairs are elements i and i + size / 2, turned by position * theta^(-2i / size).
        i = torch.arange(self.size // 2, dtype=torch.float64)
        wave = export.number("rope_theta") ** (-2 * i / self.size)
        angle = torch.arange(self.context, dtype=torch.float64)[:, None] * wave[None, :]
        self.cosine, self.sine = angle.cos().to(dtype), angle.sin().to(dtype)
        self.future = torch.ones(self.context, self.context, dtype=torch.bool).triu(1)

    def norm(self, x, name):
        gamma = self.weights[name + ".gamma"][0]
        if self.norm_kind == "layer":
            return F.layer_norm(x, x.shape[-1:], gamma, self.weights[name + ".beta"][0], self.eps)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * gamma

    def rotate(self, x):  # [sequences, heads, context, size]
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * self.cosine - b * self.sine, a * self.sine + b * self.cosine), -1)

    def attention(self, x, prefix):
        def heads(name, count):
            y = F.linear(x, self.weights[prefix + name])
            return y.view(x.shape[0], x.shape[1], count, self.size).transpose(1, 2)

        query = self.rotate(heads("query", self.heads))
        key = self.rotate(heads("key", self.kv_heads))
        value = heads("value", self.kv_heads)
        shared = self.heads // self.kv_heads  # query heads that read the same keys and values
        key = key.repeat_interleave(shared, dim=1)
        value = value.repeat_interleave(shared, dim=1)
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.size)
        scores = scores.masked_fill(self.future, -math.inf)
        y = scores.softmax(-1) @ value
        return F.linear(y.transpose(1, 2).reshape(x.shape), self.weights[prefix + "output"])

    def mlp(self, x, prefix):
        up = F.linear(x, self.weights[prefix + "up"])
        if self.activation == "swiglu":
            y = F.silu(F.linear(x, self.weights[prefix + "gate"])) * up
        else:
            y = F.gelu(up, approximate="tanh")
        return F.linear(y, self.weights[prefix + "down"])

    def loss(self, batch):  # [sequences, context + 1]
        x = F.embedding(batch[:, :-1], self.weights["embedding"])
        for layer in range(self.layers):
            prefix = f"layer.{layer}."
            x = x + self.attention(self.norm(x, prefix + "norm1"), prefix + "attention.")
            x = x + self.mlp(self.norm(x, prefix + "norm2"), prefix + "mlp.")
        logits = F.linear(self.norm(x, "norm"), self.weights["head"])
        return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def rate(export, step, steps):
    """Of step 1, 2, ...: rises over `warmup` steps, then falls along a cosine."""
    most, least = export.number("learning_rate"), export.number("minimum_rate")
    warmup = export.integer("warmup")
    if step <= warmup:
        return most * step / warmup
    progress = (step - 1 - warmup) / max(1, steps - warmup)
    return least + (most - least) * (1 + math.cos(math.pi * progress)) / 2


def train(export, model, steps, write):
    total = export.integer("steps")
    decayed = [w for name, w in model.weights.items() if not name.endswith((".gamma", ".beta"))]
    others = [w for name, w in model.weights.items() if name.endswith((".gamma", ".beta"))]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": export.number("weight_decay")},
            {"params": others, "weight_decay": 0.0},
        ],
        betas=(export.number("beta1"), export.number("beta2")),
        eps=export.number("adam_eps"),
    )
    clip = export.number("clip")
    begin = time.monotonic()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(export, step, total)
        optimizer.zero_grad()
        loss = model.loss(export.batches[step - 1].long())
        loss.backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(list(model.weights.values()), clip)
        optimizer.step()
        write(step, loss.item())
        if step % 50 == 0 or step == steps:
            spent = time.monotonic() - begin
            print(f"step {step} of {steps}: loss {loss.item():.6f}, {spent:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description="The GPT of examples/gpt, trained by PyTorch")
    parser.add_argument("folder")
    parser.add_argument("losses")
    parser.add_argument("--steps", type=int, default=0, help="as many as were exported")
    parser.add_argument("--double", action="store_true", help="compute in double")
    options = parser.parse_args()
    torch.set_num_threads(1)
    export = Export(options.folder)
    model = Model(export, torch.float64 if options.double else torch.float32)
    steps = options.steps or export.batches.shape[0]
    with open(options.losses, "w", buffering=1, encoding="ascii") as file:
        train(export, model, steps, lambda step, loss: file.write(f"{step} {loss:.9g}\n"))


if __name__ == "__main__":
    main()
