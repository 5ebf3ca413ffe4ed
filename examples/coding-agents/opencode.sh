#!/bin/sh
# opencode in front of the gateway: opencode.sh "what is in this folder?"
export OPENCODE_CONFIG_CONTENT="{\"provider\": {\"weft\": {
  \"npm\": \"@ai-sdk/openai-compatible\",
  \"name\": \"Weft\",
  \"options\": {\"baseURL\": \"${WEFT_URL:-http://127.0.0.1:8787}/v1\", \"apiKey\": \"${WEFT_KEY:-client}\"},
  \"models\": {\"${MODEL:-demo/chat}\": {\"name\": \"Weft\"}}}}}"
exec opencode run --model "weft/${MODEL:-demo/chat}" "$@"
