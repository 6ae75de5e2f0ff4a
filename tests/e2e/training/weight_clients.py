"""Drives updates of weights with the clients of vLLM and SkyRL: weight_clients.py FILES CLIENT VERSION URL...

Each client is one file of its package, as it is; what it imports of vLLM are types. Prints what failed, as JSON.
"""

import importlib.util
import json
import sys
import types

FILES, CLIENT, VERSION, *URLS = sys.argv[1:]
# All engines have one rank, and rank 0 is the trainer's.
WORLD = 3


def load(path):
    spec = importlib.util.spec_from_file_location("client", f"{FILES}/{path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in_for_types():
    """The names that vLLM's client imports for its annotations."""
    base = types.ModuleType("vllm.distributed.weight_transfer.base")
    base.WeightTransferInitRequest = base.WeightTransferUpdateRequest = object
    base.WeightTransferUpdatePayload = dict
    for name in ("vllm", "vllm.distributed", "vllm.distributed.weight_transfer"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[base.__name__] = base


def update(client):
    client.start_weight_update()
    client.update_weights({"names": ["w"], "dtype_names": ["float32"], "shapes": [[2, 2]]})
    client.finish_weight_update(VERSION)


def vllm(world=WORLD):
    """vLLM's own client pauses nothing."""
    stand_in_for_types()
    module = load("vllm/distributed/weight_transfer/clients.py")
    client = module.HTTPVLLMWeightSyncClient(URLS[0])
    client.init_weight_transfer_engine(
        {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": world}
    )
    update(client)


def skyrl():
    """As SkyRL's trainer does: whatever fails, all engines are resumed."""
    module = load("skyrl/backends/skyrl_train/weight_sync/control_plane.py")
    client = module.SkyrlWeightSyncClient(URLS, 1, init_payload_fn=module.nccl_init_payloads)
    failed = {}
    client.init_weight_transfer_engine({"rank_offset": 1, "world_size": WORLD})
    client.pause_generation()
    try:
        update(client)
    except RuntimeError as error:
        failed["update"] = str(error)
    finally:
        try:
            client.resume_generation()
        except RuntimeError as error:
            failed["resume"] = str(error)
    client.close()
    return failed


if CLIENT.startswith("skyrl"):
    print(json.dumps(skyrl()))
else:
    try:
        vllm(int(CLIENT.removeprefix("vllm-")))
        print("{}")
    except Exception as error:  # requests' own
        print(json.dumps({"update": f"{error}: {error.response.text}"}))
