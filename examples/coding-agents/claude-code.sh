#!/bin/sh
# Claude Code in front of the gateway: claude-code.sh "what is in this folder?"
export ANTHROPIC_BASE_URL="${WEFT_URL:-http://127.0.0.1:8787}"
export ANTHROPIC_API_KEY="${WEFT_KEY:-client}"
export ANTHROPIC_MODEL="${MODEL:-demo/chat}"
export ANTHROPIC_SMALL_FAST_MODEL="${MODEL:-demo/chat}"
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
exec claude -p "$@"
