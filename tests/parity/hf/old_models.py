"""Run by tests/parity/hf/old.py under an old transformers: no test, and nothing of anyformer.

For each job: build a model of a config with weights that show every part (or load a folder), save
it, call it with one batch after another (memories handed on), keep answers and gradients.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()


def made(job, folder):
    """The model of a job."""
    kind = getattr(transformers, job["class"])
    if "load" in job:
        return kind.from_pretrained(job["load"]).eval()
    torch.manual_seed(job["seed"])
    model = kind(kind.config_class(**job["config"]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder / "theirs", safe_serialization=True)
    return model.eval()


def called(model, calls, job):
    """Answers of all calls, by number and name, and what to take the gradient of."""
    found, mems, total = {}, None, 0.0
    for i in range(1 + max(int(key.partition(".")[0]) for key in calls)):
        given = {k.partition(".")[2]: v for k, v in calls.items() if k.startswith(f"{i}.")}
        out = model(**given, **({"mems": mems} if mems is not None else {}))
        mems = out.get("mems")
        for name in job["answers"]:
            found[f"{i}.{name}"] = out[name]
        total = total + (out["loss"] if "loss" in job["answers"] else weighed(out, given, job))
    return found, total


def weighed(out, given, job):
    """A sum of the first answer at real positions that weighs all numbers differently."""
    answer = out[job["answers"][0]]
    answer = answer[given["attention_mask"].bool()] if "attention_mask" in given else answer
    return (answer * torch.linspace(-1, 1, answer.numel()).view_as(answer)).mean()


def main(folder, names):
    """Do all jobs of a folder."""
    for name in names:
        place = folder / name
        job = json.loads((place / "job.json").read_text())
        model = made(job, place)
        answers, total = called(model, load_file(place / "calls.safetensors"), job)
        total.backward()
        kept = {key: t.detach().clone().contiguous() for key, t in answers.items()}
        kept |= {f"grad.{n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
        save_file({k: t.contiguous() for k, t in kept.items()}, place / "answers.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
