#!/usr/bin/env python3
"""Who may include whom, as a table. Run without arguments: exits 1 and lists every include that crosses a line.

--self-test proves that the check can fail."""
import pathlib
import re
import sys
import tempfile

# folder of core/ -> the folders whose headers it may include, besides its own and tessera/sdk
LAYERS = {
    "sdk": set(),
    "base": set(),
    "config": {"base"},
    "request": {"base"},
    "text": {"base"},
    "cache": {"base"},  # does not know requests
    "registry": {"base", "config"},
    "sched": {"base", "cache", "request"},
    "model": {"base", "config", "cache"},
    "sample": {"base", "request"},
    "http": {"base", "config"},
}
LAYERS["engine"] = set(LAYERS) - {"sdk", "http"}
LAYERS["bench"] = LAYERS["engine"] | {"engine"}
LAYERS["kit"] = LAYERS["bench"] | {"bench"}
LAYERS["app"] = LAYERS["kit"] | {"kit", "http"}

# The scheduler is host only and pure: it sees no device and no plugin interface.
SCHED_FORBIDDEN = {f"tessera/sdk/{name}.h" for name in ("backend", "attention", "device", "http", "protocol", "sparse_decode")}
CUDA = re.compile(r"^(cuda|cublas|cudnn|nccl|nvtx|cutlass|thrust|cub/|nvrtc|nvml)|\.cuh$|^tessera/sdk/cuda\.h$")
CUDA_SDK = "core/sdk/include/tessera/sdk/cuda.h"  # the one public header for CUDA plugins
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}


def includes(path):
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match.group(1), match.group(2)


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES) if folder.is_dir() else []


def core_complaint(root, folder, path, kind, name):
    """Why `folder` may not include `name`, or None."""
    if CUDA.search(name) and path != root / CUDA_SDK:
        return "CUDA headers belong in *_cuda plugin targets only"
    if name.startswith("tessera/sdk/"):
        if folder == "sched" and name in SCHED_FORBIDDEN:
            return "the scheduler sees no device and no plugin interface"
        return None
    if kind == "<":
        return None
    if name.startswith("../") or "/../" in name:
        return "name headers from core/, as in \"base/status.h\""
    if "/" not in name and (path.parent / name).exists():
        return None
    target = name.split("/")[0]
    if target == "plugins":
        return "core knows plugins by their SDK interface only"
    if not (root / "core" / target).is_dir():
        return f"core/{target} does not exist"
    if target != folder and target not in LAYERS[folder]:
        allowed = ", ".join(sorted(LAYERS[folder])) or "only tessera/sdk"
        return f"core/{folder} may include {allowed}"
    return None


def plugin_folder(root, path):
    """The folder a plugin calls its own: the outermost one that has a CMakeLists.txt of its own, below plugins/."""
    relative = path.relative_to(root / "plugins").parts[:-1]
    for depth in range(1, len(relative) + 1):
        folder = root.joinpath("plugins", *relative[:depth])
        if (folder / "CMakeLists.txt").exists() and any(p.suffix in SUFFIXES for p in folder.iterdir()):
            return folder
    return path.parent


def plugin_complaint(root, path, kind, name):
    own = plugin_folder(root, path)
    is_cuda = path.suffix in {".cu", ".cuh"} or any("cuda" in part for part in path.relative_to(root).parts)
    if CUDA.search(name) and not is_cuda:
        return "CUDA headers belong in *_cuda plugin targets only"
    if name.startswith("tessera/"):
        return None if name.startswith("tessera/sdk/") else "a plugin sees tessera/sdk and its own folder"
    if name.split("/")[0] in LAYERS and (root / "core" / name).exists():
        return "a plugin sees tessera/sdk and its own folder, never core"
    if kind == "<":
        return None
    for base in {path.parent, own}:
        resolved = (base / name).resolve()
        if resolved.exists() and own.resolve() in resolved.parents:
            return None
    return f"not found in {own.relative_to(root)}; a plugin sees tessera/sdk and its own folder"


def check(root):
    complaints = []

    def complain(path, line, name, why):
        complaints.append(f"{path.relative_to(root)}:{line}: includes {name}: {why}")

    core = root / "core"
    for folder in sorted(p for p in core.iterdir() if p.is_dir()):
        if folder.name not in LAYERS:
            complaints.append(f"core/{folder.name}: not in the table of tools/check_layers.py; add it with its layer")
            continue
        for path in sources(folder):
            for line, kind, name in includes(path):
                why = core_complaint(root, folder.name, path, kind, name)
                if why:
                    complain(path, line, name, why)
    for path in sources(root / "plugins"):
        for line, kind, name in includes(path):
            why = plugin_complaint(root, path, kind, name)
            if why:
                complain(path, line, name, why)
    return complaints


def self_test():
    cases = {  # file -> (its include, whether that must be refused)
        "core/base/a.h": ('"config/config.h"', True),
        "core/base/b.h": ('"base/a.h"', False),
        "core/base/c.h": ("<cuda_runtime.h>", True),
        "core/base/d.h": ("<vector>", False),
        "core/cache/a.h": ('"request/request.h"', True),
        "core/sched/a.h": ('"tessera/sdk/backend.h"', True),
        "core/sched/b.h": ("<tessera/sdk/attention.h>", True),
        "core/sched/c.h": ('"cache/a.h"', False),
        "core/model/a.h": ('"tessera/sdk/backend.h"', False),
        "core/model/b.h": ('"sched/a.h"', True),
        "core/http/a.h": ('"engine/a.h"', True),
        "core/engine/a.h": ('"sched/a.h"', False),
        "core/engine/b.h": ('"app/a.h"', True),
        "core/app/a.h": ('"engine/a.h"', False),
        "core/config/config.h": ('"base/a.h"', False),
        "core/request/request.h": ('"../base/a.h"', True),
        "core/strange/a.h": ("<vector>", True),
        "plugins/one/a.cpp": ('"b.h"', False),
        "plugins/one/b.h": ('"tessera/sdk/sdk.h"', False),
        "plugins/one/c.cpp": ('"base/a.h"', True),
        "plugins/one/d.cpp": ('"../two/a.h"', True),
        "plugins/one/e.cpp": ("<cuda_runtime.h>", True),
        "plugins/one/f.cu": ("<cuda_runtime.h>", False),
        "plugins/one/g.cpp": ('"tessera/sdk/cuda.h"', True),
        "plugins/one/g.cu": ('"tessera/sdk/cuda.h"', False),
        "core/engine/cuda.h": ('"tessera/sdk/cuda.h"', True),
        CUDA_SDK: ("<cuda_runtime.h>", False),
        "plugins/two/a.h": ("<vector>", False),
    }
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, (target, _) in cases.items():
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#pragma once\n#include {target}\n")
        (root / "plugins/one/CMakeLists.txt").write_text("")
        complaints = check(root)
    wrong = []
    for file, (target, refused) in cases.items():
        owner = "core/strange" if file.startswith("core/strange") else file
        if any(c.startswith(owner + ":") for c in complaints) != refused:
            wrong.append(f"self-test: {file} including {target} should {'' if refused else 'not '}be refused")
    return wrong


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    complaints = self_test()
    if not complaints and "--self-test" not in sys.argv[1:]:
        complaints = check(root)
    print("\n".join(complaints) if complaints else "check_layers: ok")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
