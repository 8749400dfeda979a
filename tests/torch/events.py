"""What a script of these tests has done: lines in the file that its first argument names."""

import os
import sys
import time


def say(what, **more):
    fields = {"t": f"{time.time():.3f}", "what": what, "pid": os.getpid(), **more}
    fields["launch"] = os.environ.get("SYNCD_LAUNCH", "-")
    for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT"):
        fields[name] = os.environ[name]
    line = " ".join(f"{key}={value}" for key, value in fields.items()) + "\n"
    descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)
