#!/usr/bin/env bash
# sbatch docs/clusters/slurm.sh ./my_program --its --args
# The job's secret, LOCKSTEP_SECRET_FILE or job.secret in the folder of sbatch, must lie where all nodes can read it:
#   (umask 077; head -c 32 /dev/urandom > job.secret)
#SBATCH --job-name=lockstep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --output=lockstep-%j.log
set -euo pipefail

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(scontrol --oneliner show node "$first" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
LOCKSTEP_SECRET_FILE=$(realpath "${LOCKSTEP_SECRET_FILE:-job.secret}")
export MASTER_ADDR MASTER_PORT LOCKSTEP_SECRET_FILE

# Without --kill-on-bad-exit the other ranks end by themselves, with an error that names the one that failed.
srun --kill-on-bad-exit=1 "$@"
