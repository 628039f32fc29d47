#!/bin/sh
# Runs on every host of a TPU slice, which has TPU_WORKER_ID and TPU_WORKER_HOSTNAMES.
set -eu
exec halite train mnist --accelerator tpu --resume
