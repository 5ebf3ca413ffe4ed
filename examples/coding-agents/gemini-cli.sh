#!/bin/sh
# Gemini CLI in front of the gateway: gemini-cli.sh "what is in this folder?"
# ~/.gemini/settings.json: {"security": {"auth": {"selectedType": "gemini-api-key"}}}
export GOOGLE_GEMINI_BASE_URL="${WEFT_URL:-http://127.0.0.1:8787}"
export GEMINI_API_KEY="${WEFT_KEY:-client}"
exec gemini -m "${MODEL:-demo/chat}" -p "$@"
