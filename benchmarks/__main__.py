"""Run one benchmark alone: `python -m benchmarks NAME [--FIELD VALUE ...]` prints its records as JSON lines.

    python -m benchmarks gemm
    torchrun --nproc-per-node=4 -m benchmarks collectives --op all_reduce --sizes 8,65536

Options are the fields of the benchmark's spec. Nothing is judged and nothing but the lines is written.
Exit status: 0 measured, 3 a benchmark raised, 4 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import os
import sys
import tempfile
import traceback
import typing
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import scratch
from benchmarks.measurement import encode
from benchmarks.spec import BENCHMARKS, Place, load_spec, to_config

TOOLS = {"--dry-run": "plan", "--sweep": "sweep"}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] and arguments[0] in BENCHMARKS and (tool := _tool(arguments[0], arguments[1:])):
            return tool(arguments[1:])
        options = vars(_parser().parse_args(arguments))
    except SystemExit as end:  # argparse's own status for usage is 2
        raise SystemExit(4 if end.code == 2 else end.code) from None
    name, device, time_limit_s = options.pop("benchmark"), options.pop("device"), options.pop("group_timeout")
    try:
        spec = load_spec(name)(**options)
        place = place_of(device, env=getattr(spec, "env", ()))
        spec.emits(place)
    except ValueError as error:
        print(f"python -m benchmarks {name}: {error}", file=sys.stderr)
        return 4
    return _measure(spec, place, time_limit_s)


def _tool(name: str, arguments: list[str]) -> Callable[[list[str]], int] | None:
    """A benchmark's own planner (`--dry-run`, in plan.py) or search (`--sweep`, in sweep.py), if it is asked for."""
    module = next((f"benchmarks.{name}.{TOOLS[word]}" for word in arguments if word in TOOLS), "")
    if not module or importlib.util.find_spec(module) is None:
        return None
    main_of: Callable[[list[str]], int] = importlib.import_module(module).main
    return main_of


def _measure(spec: Any, place: Place, timeout_s: float) -> int:
    import torch.distributed as dist

    from benchmarks.worker import measure
    from benchmarks.world import open_world

    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, value)
    os.environ.update({name: value for name, _, value in (pair.partition("=") for pair in place.env)})
    if os.environ["RANK"] == "0" and (warning := spec.warning(place) if hasattr(spec, "warning") else ""):
        print(f"warning: {warning}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="rackproof-", dir=scratch.root()) as own:
        world = open_world(place, timeout_s=timeout_s)
        world = dataclasses.replace(world, scratch=world.gather(own)[world.local_ranks[0]])
        try:
            for measurement in measure(to_config(spec, place), world):
                print(encode(measurement), flush=True)
            world.barrier()  # the folder of rank 0 stays until everybody is done with it
        except Exception:  # noqa: BLE001 - the rank's boundary
            traceback.print_exc()
            return 3
        dist.destroy_process_group()
    return 0


def place_of(device: str, env: tuple[str, ...] = ()) -> Place:
    """Where this process and its fellows run, as torchrun tells them."""
    ranks, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    backend = "nccl" if device == "cuda" and ranks > 1 else "gloo"
    return Place(
        device=device, backend=backend, nodes=max(1, ranks // local), ranks_per_node=min(local, ranks), env=env
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="NAME")
    for name in BENCHMARKS:
        if importlib.util.find_spec(f"benchmarks.{name}.spec") is None:
            continue
        cls = load_spec(name)
        summary = (cls.__doc__ or "").strip()
        command = commands.add_parser(
            name, help=summary.splitlines()[0], description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where ranks compute")
        command.add_argument("--group-timeout", type=float, default=300.0, help="seconds before a collective gives up")
        add_fields(command, cls)
    return parser


def add_fields(command: argparse.ArgumentParser, cls: type[Any]) -> None:
    """An option for each field of a spec."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = None if required else field.default
        alone: dict[str, Any] = {"nargs": "?", "const": True} if hints[field.name] is bool else {}
        command.add_argument(
            f"--{field.name.replace('_', '-')}", dest=field.name, required=required, default=default,
            type=_reader(hints[field.name]), help="required" if required else f"default {_shown(default)}", **alone,
        )  # fmt: skip


def _reader(kind: Any) -> Callable[[str], Any]:
    """How a field of this type is read from the command line: lists are comma-separated."""
    if typing.get_origin(kind) is tuple:
        item = _reader(typing.get_args(kind)[0])
        return lambda text: tuple(item(part) for part in text.split(",") if part)
    if kind is bool:
        return _truth
    args = [a for a in typing.get_args(kind) if a is not type(None)]
    return _reader(args[0]) if args else typing.cast(Callable[[str], Any], kind)


def _truth(text: str) -> bool:
    words = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return words[text.lower()]


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    sys.exit(main())
