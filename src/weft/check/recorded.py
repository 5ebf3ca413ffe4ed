"""What was measured, read or reported of other clients, on the date that stands there."""

from weft.check.verdict import UNKNOWN, Client, Verdict, rows

SUITE = Client("open-responses compliance suite", "2026-07", "2026-11-16")
AI_UI = Client("ai (useChat)", "7.0.169", "2026-11-16")
GENAI = Client("google-genai", "3.1.0", "2026-11-16")
AI_OPENAI = Client("@ai-sdk/openai", "4.0.46", "2026-08-22")
LANGCHAIN = Client("@langchain/openai", "1.4.7", "2026-06-12")
CODEX = Client("codex", "0.154.0-alpha.6.2", "2026-09-14")
CODEX_0117 = Client("codex", "0.117", "2026-03-28")

_UI = "measured through DefaultChatTransport and AbstractChat of ai 5.0.277, 6.0.326 and 7.0.169"
_UI_CHUNKS = "measured with 14 chunk shapes on eleven versions of ai, 5.0.0 to 7.0.77"
_GENAI_SOURCE = "measured with 18 streams through a mock transport"
_AI_OPENAI_SOURCE = "read in vercel/ai at ed857f50f112"

RECORDED: tuple[Verdict, ...] = (
    *rows(
        SUITE,
        "openai-responses",
        "recorded",
        (
            "sse/line-ends-crlf",
            "loses",
            "Its reader recognises no event.",
            "measured with the suite's own reader",
        ),
        (
            "sse/data-lines-several",
            "loses",
            "Its reader keeps the last data line of an event only, which is no JSON.",
            "measured with the suite's own reader",
        ),
        (
            "lifecycle/frame-unterminated",
            "loses",
            "Its reader drops the last event.",
            "measured with the suite's own reader",
        ),
    ),
    *rows(
        AI_UI,
        "ai-sdk",
        "recorded",
        (
            "ai-sdk/event-object",
            "raises",
            "The chat goes to its error state; nothing more is read.",
            _UI,
        ),
        (
            "ai-sdk/chunk-type",
            "raises",
            "The chat goes to its error state; nothing more is read.",
            _UI,
        ),
        (
            "ai-sdk/required-key",
            "raises",
            "The chat goes to its error state; nothing more is read.",
            _UI,
        ),
        (
            "ai-sdk/null-key",
            "raises",
            "The chat goes to its error state; nothing more is read.",
            _UI,
        ),
        (
            "ai-sdk/finish-reason",
            "raises",
            "The chat goes to its error state; version 5 lets it pass.",
            _UI,
        ),
        (
            "ai-sdk/item-not-open",
            "raises",
            "A delta or an end without its start puts the chat into its error state.",
            _UI,
        ),
        (
            "ai-sdk/item-repeated",
            "doubles",
            "A second start of an open id makes a second part.",
            _UI,
        ),
        (
            "ai-sdk/item-open",
            "hangs",
            "The part stays in the state `streaming`.",
            _UI,
        ),
        (
            "ai-sdk/call-id-differs",
            "doubles",
            "Two tool parts are shown, and the first is never completed.",
            _UI,
        ),
        (
            "ai-sdk/call-repeated",
            "doubles",
            "onToolCall runs twice.",
            _UI,
        ),
        (
            "ai-sdk/call-dynamic",
            "doubles",
            "Two parts with one call id are shown.",
            _UI,
        ),
        (
            "ai-sdk/call-open",
            "hangs",
            "The tool part waits for its input for ever.",
            _UI,
        ),
        (
            "ai-sdk/output-unknown-call",
            "raises",
            "The chat goes to its error state; nothing more is read.",
            _UI,
        ),
        (
            "lifecycle/error-reported",
            "hangs",
            "The client throws and reads nothing more: open parts stay in the state `streaming`.",
            _UI,
        ),
    ),
    *rows(
        Client("ai (useChat)", "7.0.0", AI_UI.date),
        "ai-sdk",
        "recorded",
        (
            "ai-sdk/unknown-key",
            "raises",
            "The chat goes to its error state; 7.0.77 lets unknown keys pass.",
            _UI_CHUNKS,
        ),
    ),
    *rows(
        GENAI,
        "gemini",
        "recorded",
        (
            "gemini/extra-line",
            "raises",
            "Its reader knows `data: ` lines and blank ones; any other line raises.",
            _GENAI_SOURCE,
        ),
        (
            "gemini/done-frame",
            "raises",
            "The terminator is parsed as JSON.",
            _GENAI_SOURCE,
        ),
        (
            "gemini/frame-array",
            "loses",
            "Nothing useful is read of a stream that is one array.",
            _GENAI_SOURCE,
        ),
        (
            "lifecycle/truncated",
            "ignores",
            "Half an answer is returned as if it were whole.",
            _GENAI_SOURCE,
        ),
        (
            "lifecycle/error-reported",
            "raises",
            "ClientError or ServerError, by the code of the error.",
            _GENAI_SOURCE,
        ),
    ),
    *rows(
        AI_OPENAI,
        "openai-responses",
        "recorded",
        (
            "openai-responses/item-not-added",
            "loses",
            "Argument deltas of an item that was not added are dropped.",
            _AI_OPENAI_SOURCE,
        ),
        (
            "lifecycle/whole-extends",
            "loses",
            "Arguments that come only with their end are not streamed: no delta is handed on.",
            _AI_OPENAI_SOURCE,
        ),
        (
            "lifecycle/error-reported",
            "hangs",
            "A text that was open when the error came is never ended.",
            _AI_OPENAI_SOURCE,
        ),
    ),
    *rows(
        LANGCHAIN,
        "openai-chat",
        "recorded",
        (
            "lifecycle/finish-repeated",
            "doubles",
            "The finish reason and the model's name are joined to themselves: `stopstop`.",
            "langchain-ai/langchainjs#11054",
        ),
    ),
    *rows(
        CODEX,
        "openai-responses",
        "recorded",
        (
            "openai-responses/error-without-failed",
            "loses",
            "The error event is skipped: the user learns that the stream closed, but not why.",
            "zyycn/codex-proxy-rs#90",
        ),
    ),
    *rows(
        CODEX_0117,
        "openai-responses",
        "recorded",
        (
            "openai-responses/type-missing",
            "raises",
            "Events without their type are skipped, the last one too: the turn fails.",
            "7836246/cursor2api#116",
        ),
        (
            "openai-responses/terminal-missing",
            "raises",
            "The turn is tried again five times, and fails.",
            "7836246/cursor2api#116",
        ),
    ),
    *rows(
        Client("claude code", UNKNOWN, "2026-03-31"),
        "anthropic-messages",
        "recorded",
        (
            "anthropic-messages/event-line",
            "doubles",
            "The stream counts as empty, and the whole request is sent again without streaming.",
            "seifghazi/claude-code-proxy#32",
        ),
    ),
    *rows(
        Client("claude code", UNKNOWN, "2026-04-27"),
        "anthropic-messages",
        "recorded",
        (
            "anthropic-messages/usage-missing",
            "raises",
            "It reads input_tokens of a usage that is undefined, and the turn fails.",
            "Alishahryar1/free-claude-code#209",
        ),
    ),
    *rows(
        Client("claude code", UNKNOWN, "2026-09-01"),
        "anthropic-messages",
        "recorded",
        (
            "anthropic-messages/message-stop",
            "raises",
            "The user is told that the response stopped arriving and may be incomplete.",
            "Sunnyender-org/cursor-sdk2api#25",
        ),
    ),
)
