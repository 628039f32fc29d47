#!/bin/sh
#SBATCH --job-name=halite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
# A signal 60 s before the time limit: all processes save a checkpoint at one step.
#SBATCH --signal=TERM@60
#SBATCH --time=04:00:00
set -eu
# Nobody else joins the job.
HALITE_JOB_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export HALITE_JOB_SECRET
# If one process fails, the others are ended at once.
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    halite train mnist --out "$SLURM_SUBMIT_DIR/runs/mnist" --resume
