#!/bin/sh
# usage, on every host: nodes.sh FIRST_HOST NUMBER_OF_HOSTS INDEX_OF_THIS_HOST
set -eu
export HALITE_COORDINATOR_ADDRESS="$1:29500" HALITE_NUM_PROCESSES="$2" HALITE_PROCESS_ID="$3"
exec halite train mnist --resume
