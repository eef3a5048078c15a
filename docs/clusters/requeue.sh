#!/usr/bin/env bash
# sbatch docs/clusters/requeue.sh ./my_program --its --args
# As slurm.sh, for a program that saves its state when it is asked to stop and then ends with 75 (dist::EXIT_REQUEUE): the
# job goes back into the queue until the program ends with another code. Slurm asks with SIGUSR1 a minute before the time
# limit, and with SIGTERM when another job takes the nodes or somebody calls scontrol requeue.
#SBATCH --job-name=lockstep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --output=lockstep-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=USR1@60
set -euo pipefail

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(scontrol --oneliner show node "$first" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
LOCKSTEP_SECRET_FILE=$(realpath "${LOCKSTEP_SECRET_FILE:-job.secret}")
export MASTER_ADDR MASTER_PORT LOCKSTEP_SECRET_FILE

# SIGTERM reaches this shell as well, which has to stay until the ranks have saved their state.
trap : TERM

# Not --kill-on-bad-exit: 75 of one rank must not end another one that still writes. A rank whose peer has died ends by itself.
code=0
srun "$@" || code=$?
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID" || true # Slurm has requeued a job that it preempts
fi
exit "$code"
