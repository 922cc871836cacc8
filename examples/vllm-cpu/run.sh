#!/usr/bin/env bash
# Real vLLM, real SIGKILL: prepares what is missing and runs both campaigns. See README.md.
#   ./run.sh [api-kill|engine-kill …]   RUNS=1 for one run each   BLACKSTART=path of the binary
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
blackstart=${BLACKSTART:-$here/../../target/release/blackstart}
[ -x "$blackstart" ] || { echo "no $blackstart: build it with \`cargo xtask build\`, or set BLACKSTART" >&2; exit 3; }
"$here/prepare.sh"
[ $# -gt 0 ] || set -- api-kill engine-kill
status=0
for campaign in "$@"; do
  "$blackstart" run "$here/$campaign.toml" --out "$here/work/results" ${RUNS:+--runs "$RUNS"} || status=$?
  [ "$status" != 130 ] || break # interrupted
done
exit "$status"
