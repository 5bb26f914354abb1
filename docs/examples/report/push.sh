#!/usr/bin/env bash
# Reports one job that held one GPU in the last ten seconds. Anything that can send JSON can report; this needs curl only.
#
#   GPULEDGER_URL=http://127.0.0.1:8080 GPULEDGER_TOKEN=gpul_… ./push.sh CLUSTER NODE
set -euo pipefail

cluster=$1
node=$2
now_us=$(date +%s)000000
# The second before the last whole ten, so that the segment is over and lies within one UTC hour.
end_us=$(( now_us / 10000000 * 10000000 ))
start_us=$(( end_us - 10000000 ))

curl --silent --show-error --fail-with-body \
    --header "Authorization: Bearer $GPULEDGER_TOKEN" \
    --header "Content-Type: application/json" \
    --data @- "$GPULEDGER_URL/api/v1/reports" <<EOF
{
  "protocol": 1,
  "cluster": "$cluster",
  "node": "$node",
  "boot_id": "$(cat /proc/sys/kernel/random/boot_id)",
  "epoch": { "start_us": $start_us, "random": $(( RANDOM * 32 )) },
  "sequence": 1,
  "clocks": { "wall_us": $now_us, "boot_us": 0 },
  "collector": "push.sh",
  "units": [
    {
      "gpu": { "uuid": "GPU-$node-0", "model": "NVIDIA H100 80GB HBM3", "compute_slices": 7, "memory_slices": 8 },
      "kind": "full", "compute_slices": 7, "memory_slices": 8, "birth_us": $start_us
    }
  ],
  "jobs": [{ "source_id": "example-1", "start_us": $start_us, "facts": { "user": "${USER:-nobody}", "account": "search" } }],
  "segments": [
    { "number": 0, "unit": 0, "job": 0, "state": "held", "start_us": $start_us, "end_us": $end_us, "share_us": 10000000 }
  ]
}
EOF
echo
