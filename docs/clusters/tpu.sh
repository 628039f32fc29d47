#!/bin/sh
# Runs on every host of a TPU slice, which has TPU_WORKER_ID and TPU_WORKER_HOSTNAMES. It shows the job
# that the hosts form; training with the TPUs of several hosts is not possible yet.
set -eu
exec halite job --accelerator cpu
