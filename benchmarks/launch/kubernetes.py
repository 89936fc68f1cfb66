"""A manifest for Kubernetes: one pod a node, in each a torchrun agent that starts the node's ranks. Rendered, not run.

An Indexed Job numbers its pods, and a headless Service gives each a name; or a JobSet does both, where its controller
is installed. The ranks find the campaign's controller by a Secret named `rackproof-control`, whose keys `address` and
`key` become RACKPROOF_CONTROL and RACKPROOF_KEY; nothing secret stands in the manifest.

>>> render(image="registry.example/torch:1", num_nodes=2, ranks_per_node=8)["items"][1]["spec"]["completions"]
2
"""

from __future__ import annotations

import shlex
from typing import Any

from benchmarks.launch.checkout import ROOT

SECRET = "rackproof-control"
PORT = 29500


def render(
    *, image: str, num_nodes: int, ranks_per_node: int, name: str = "rackproof", gpus: bool = True,
    module: str = "benchmarks.worker", jobset: bool = False, checkout: str = ROOT,
) -> dict[str, Any]:  # fmt: skip
    """The manifest as plain data: a List of a Service and a Job, or a JobSet.

    Raises ValueError for a name that no pod may have, or no node or rank.
    """
    if not (name.replace("-", "").isalnum() and name == name.lower() and name[0].isalpha() and len(name) <= 40):
        raise ValueError(f"{name!r}: a name of pods is lower-case letters, digits and -, 40 at most")
    if num_nodes < 1 or ranks_per_node < 1:
        raise ValueError("at least one node and one rank a node")
    first = f"{name}-workers-0-0.{name}" if jobset else f"{name}-0.{name}"
    pod = _pod(image, num_nodes, ranks_per_node, first, subdomain=name, gpus=gpus, module=module, checkout=checkout)
    job = {
        "completionMode": "Indexed", "completions": num_nodes, "parallelism": num_nodes, "backoffLimit": 0,
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
    }  # fmt: skip
    if jobset:
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
            "spec": {
                "network": {"enableDNSHostnames": True, "subdomain": name},
                "failurePolicy": {"maxRestarts": 0},
                "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}],
            },
        }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "publishNotReadyAddresses": True},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "List",
        "items": [service, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}],
    }  # fmt: skip


def _pod(image: str, num_nodes: int, ranks_per_node: int, first: str, *, subdomain: str, gpus: bool, module: str,
         checkout: str) -> dict[str, Any]:  # fmt: skip
    """One node's pod; $(JOB_COMPLETION_INDEX), which Kubernetes sets, is the node's number."""
    agent = [
        "python", "-m", "torch.distributed.run", f"--nnodes={num_nodes}", f"--nproc-per-node={ranks_per_node}",
        "--max-restarts=0", "--rdzv-backend=static", f"--master-addr={first}", f"--master-port={PORT}",
    ]  # fmt: skip
    line = f"exec {shlex.join(agent)} --node-rank=$JOB_COMPLETION_INDEX -m {shlex.quote(module)}"
    container: dict[str, Any] = {
        "name": "ranks", "image": image, "workingDir": checkout, "command": ["sh", "-c", line],
        "env": [
            _secret("RACKPROOF_CONTROL", "address"), _secret("RACKPROOF_KEY", "key"),
            {"name": "PYTHONPATH", "value": checkout}, {"name": "CONTAINER_DIGEST", "value": image},
        ],
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "resources": {"limits": {"nvidia.com/gpu": ranks_per_node}} if gpus else {},
    }  # fmt: skip
    return {
        "restartPolicy": "Never", "subdomain": subdomain, "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": subdomain}}}
        ]}},
    }  # fmt: skip


def _secret(variable: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key}}}
