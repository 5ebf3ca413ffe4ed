#!/bin/sh
# Codex in front of the gateway: codex.sh "what is in this folder?"
export WEFT_KEY="${WEFT_KEY:-client}"
exec codex exec --skip-git-repo-check \
  -c model_provider=weft \
  -c model_providers.weft.name=Weft \
  -c model_providers.weft.base_url="${WEFT_URL:-http://127.0.0.1:8787}/v1" \
  -c model_providers.weft.wire_api=responses \
  -c model_providers.weft.env_key=WEFT_KEY \
  -m "${MODEL:-demo/chat}" "$@"
