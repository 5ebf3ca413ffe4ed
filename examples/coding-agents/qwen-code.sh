#!/bin/sh
# Qwen Code in front of the gateway: qwen-code.sh "what is in this folder?"
export OPENAI_BASE_URL="${WEFT_URL:-http://127.0.0.1:8787}/v1"
export OPENAI_API_KEY="${WEFT_KEY:-client}"
export OPENAI_MODEL="${MODEL:-demo/chat}"
exec qwen --auth-type openai -p "$@"
