#!/usr/bin/env bash
# docs/clusters/mpirun.sh HOST:RANKS,HOST:RANKS ./my_program --its --args      (Open MPI, or MPICH)
# The job's secret, LOCKSTEP_SECRET_FILE or job.secret here, must lie at the same path on all hosts.
set -euo pipefail

hosts=$1
shift
MASTER_ADDR=${MASTER_ADDR:-${hosts%%:*}}
MASTER_PORT=${MASTER_PORT:-29500}
LOCKSTEP_SECRET_FILE=$(realpath "${LOCKSTEP_SECRET_FILE:-job.secret}")
export MASTER_ADDR MASTER_PORT LOCKSTEP_SECRET_FILE

ranks=$(tr , '\n' <<< "$hosts" | awk -F: '{sum += $2} END {print sum}')
mpirun=${MPIRUN:-mpirun}
version=$("$mpirun" --version)
if [[ $version == *"Open MPI"* || $version == *OpenRTE* ]]; then
  # Bound to a core each, a rank's threads would all share it. Open MPI passes on only the variables that are named.
  exec "$mpirun" -n "$ranks" --host "$hosts" --bind-to none -x MASTER_ADDR -x MASTER_PORT -x LOCKSTEP_SECRET_FILE "$@"
fi
# MPICH names the process that failed, by its number; the shell around each rank names the rank.
# shellcheck disable=SC2016
exec "$mpirun" -n "$ranks" -hosts "$hosts" -bind-to none \
  sh -c '"$@"; code=$?; [ $code = 0 ] || echo "rank $PMI_RANK failed: exit code $code" >&2; exit $code' sh "$@"
