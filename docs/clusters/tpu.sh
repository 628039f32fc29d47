#!/bin/sh
# Runs on every host of a TPU slice, which has TPU_WORKER_ID and TPU_WORKER_HOSTNAMES: one process on
# each host, and one program on the TPUs of all. It was never run on TPUs. `halite job --accelerator tpu`
# in place of the last line shows the job alone. --out is on a file system that all hosts share.
set -eu
exec halite train mnist --accelerator tpu --out /mnt/shared/runs/mnist --resume
