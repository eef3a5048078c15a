#!/usr/bin/env bash
# docs/clusters/ssh.sh HOST,HOST RANKS_PER_HOST ./my_program --its --args
# Starts one launcher on each host; the first host's address is where they meet. The folder this is started in must exist on
# all hosts; the program and `lockstep` must be there, or in PATH. The secret reaches the others through ssh.
# MAX_RESTARTS=3 in front: so often all ranks are started again after one has failed.
set -euo pipefail

IFS=, read -ra hosts <<< "$1"
ranks=$2
shift 2
port=${MASTER_PORT:-29500}
secret=$(umask 077; mktemp)
trap 'rm -f "$secret"; kill $(jobs -p) 2> /dev/null || true' EXIT
head -c 32 /dev/urandom > "$secret"

node=0
for host in "${hosts[@]}"; do
  printf -v command ' %q' "${LOCKSTEP:-lockstep}" run --nnodes ${#hosts[@]} --node-rank $node --master-addr "${hosts[0]}" \
    --master-port "$port" --nproc-per-node "$ranks" --max-restarts "${MAX_RESTARTS:-0}" --no-logs
  printf -v words ' %q' "$@"
  # The secret comes as the standard input and goes into a file of its own.
  ssh "$host" "cd $(printf %q "$PWD") && secret=\$(umask 077; mktemp) && cat > \"\$secret\" &&
    {$command --secret-file \"\$secret\" $words < /dev/null; code=\$?; rm -f \"\$secret\"; exit \$code; }" < "$secret" &
  node=$((node + 1))
done
code=0
for job in $(jobs -p); do
  wait "$job" || code=$?
done
exit "$code"
