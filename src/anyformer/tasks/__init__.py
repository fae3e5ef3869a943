"""Texts and images in, plain answers out: `anyformer.task(name, model)`."""

from anyformer.tasks.registry import TASKS, task
from anyformer.tasks.tool import Tool

__all__ = ["TASKS", "Tool", "task"]
