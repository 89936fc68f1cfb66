"""Where this checkout lies: every rank finds it at the same path, shared or copied there."""

from __future__ import annotations

from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent.parent)
