// Runs one case a line: JSON in, JSON out. Each client is used as its documentation shows it.
// The packages are those of the folder it runs in.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import * as readline from "node:readline";

// Answers are the only lines on stdout.
for (const name of ["log", "info", "debug", "warn"]) console[name] = console.error;

const require = createRequire(process.cwd() + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));

const { default: OpenAI } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { GoogleGenAI } = await load("@google/genai");
const ai = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createGoogleGenerativeAI } = await load("@ai-sdk/google");
const agents = await load("@openai/agents");
const { z } = await load("zod");

const KEYS = { weather: "city", clock: "zone" };
const ABOUT = { weather: "The weather in a city.", clock: "The time in a zone." };
const BRIEF = "Be brief.";
const Forecast = z.strictObject({ city: z.string(), degrees: z.number().int() });
const SHAPE = {
  type: "object",
  properties: { city: { type: "string" }, degrees: { type: "integer" } },
  required: ["city", "degrees"],
  additionalProperties: false,
};
const parameters = (name) => ({
  type: "object",
  properties: { [KEYS[name]]: { type: "string" } },
  required: [KEYS[name]],
  additionalProperties: false,
});
const NAMES = Object.keys(KEYS);

function runTool(one, name, given) {
  one.ran.push([name, given]);
  return name === "weather" ? `${given.city}: 21 °C` : `${given.zone}: 12:00`;
}

const joined = (parts) => parts.join("");

// openai

async function openaiChat(one) {
  const client = new OpenAI({ baseURL: one.base + "/v1", apiKey: one.key, maxRetries: 0 });
  const messages = [
    { role: "system", content: BRIEF },
    { role: "user", content: one.prompt },
  ];
  const asked = { model: one.model, messages };
  if (one.tools)
    asked.tools = NAMES.map((name) => ({
      type: "function",
      function: { name, description: ABOUT[name], parameters: parameters(name) },
    }));
  if (one.thinks) asked.reasoning_effort = "low";
  if (one.shaped)
    asked.response_format = {
      type: "json_schema",
      json_schema: { name: "forecast", schema: SHAPE, strict: true },
    };
  for (;;) {
    let completion;
    if (one.stream) {
      const stream = client.chat.completions.stream({
        ...asked,
        stream_options: { include_usage: true },
      });
      // The package joins what it knows; the rest is the user's to join.
      let thought = "";
      stream.on("chunk", (chunk) => (thought += chunk.choices[0]?.delta.reasoning_content ?? ""));
      completion = await stream.finalChatCompletion();
      if (thought) completion.choices[0].message.reasoning_content = thought;
    } else completion = await client.chat.completions.create(asked);
    const message = completion.choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length)
      return {
        text: message.content,
        thought: message.reasoning_content,
        value: one.shaped ? JSON.parse(message.content) : null,
        usage: [completion.usage.prompt_tokens, completion.usage.completion_tokens],
      };
    for (const call of message.tool_calls)
      messages.push({
        role: "tool",
        tool_call_id: call.id,
        content: runTool(one, call.function.name, JSON.parse(call.function.arguments)),
      });
  }
}

async function openaiResponses(one) {
  const client = new OpenAI({ baseURL: one.base + "/v1", apiKey: one.key, maxRetries: 0 });
  const input = [{ role: "user", content: one.prompt }];
  const asked = { model: one.model, instructions: BRIEF, input, store: false };
  if (one.tools)
    asked.tools = NAMES.map((name) => ({
      type: "function",
      name,
      description: ABOUT[name],
      parameters: parameters(name),
      strict: true,
    }));
  if (one.thinks) {
    asked.reasoning = { effort: "low", summary: "auto" };
    asked.include = ["reasoning.encrypted_content"];
  }
  if (one.shaped)
    asked.text = { format: { type: "json_schema", name: "forecast", schema: SHAPE, strict: true } };
  for (;;) {
    const response = one.stream
      ? await client.responses.stream(asked).finalResponse()
      : await client.responses.create(asked);
    if (response.status === "failed") throw new Error(response.error.message);
    // What the stream helper adds for its user is not for the wire.
    for (const { parsed_arguments, ...item } of response.output) input.push(item);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length)
      return {
        text: response.output_text,
        thought: joined(
          response.output
            .filter((item) => item.type === "reasoning")
            .flatMap((item) => [...item.summary, ...(item.content ?? [])])
            .map((part) => part.text),
        ),
        value: one.shaped ? JSON.parse(response.output_text) : null,
        usage: [response.usage.input_tokens, response.usage.output_tokens],
      };
    for (const call of calls)
      input.push({
        type: "function_call_output",
        call_id: call.call_id,
        output: runTool(one, call.name, JSON.parse(call.arguments)),
      });
  }
}

// @anthropic-ai/sdk

async function anthropic(one) {
  const client = new Anthropic({ baseURL: one.base, apiKey: one.key, maxRetries: 0 });
  const messages = [{ role: "user", content: one.prompt }];
  const asked = { model: one.model, max_tokens: 4096, system: BRIEF, messages };
  if (one.tools)
    asked.tools = NAMES.map((name) => ({
      name,
      description: ABOUT[name],
      input_schema: parameters(name),
    }));
  if (one.thinks) asked.thinking = { type: "enabled", budget_tokens: 2048 };
  if (one.shaped) asked.output_config = { format: { type: "json_schema", schema: SHAPE } };
  for (;;) {
    const message = one.stream
      ? await client.messages.stream(asked).finalMessage()
      : await client.messages.create(asked);
    messages.push({ role: "assistant", content: message.content });
    const calls = message.content.filter((block) => block.type === "tool_use");
    const said = (kind, key) =>
      joined(message.content.filter((block) => block.type === kind).map((block) => block[key]));
    if (!calls.length)
      return {
        text: said("text", "text"),
        thought: said("thinking", "thinking"),
        value: one.shaped ? JSON.parse(said("text", "text")) : null,
        usage: [
          message.usage.input_tokens +
            (message.usage.cache_read_input_tokens ?? 0) +
            (message.usage.cache_creation_input_tokens ?? 0),
          message.usage.output_tokens,
        ],
      };
    messages.push({
      role: "user",
      content: calls.map((call) => ({
        type: "tool_result",
        tool_use_id: call.id,
        content: runTool(one, call.name, call.input),
      })),
    });
  }
}

// @google/genai

async function genai(one) {
  const client = new GoogleGenAI({ apiKey: one.key, httpOptions: { baseUrl: one.base } });
  const contents = [{ role: "user", parts: [{ text: one.prompt }] }];
  const config = { systemInstruction: BRIEF };
  if (one.tools)
    config.tools = [
      {
        functionDeclarations: NAMES.map((name) => ({
          name,
          description: ABOUT[name],
          parametersJsonSchema: parameters(name),
        })),
      },
    ];
  if (one.thinks) config.thinkingConfig = { includeThoughts: true, thinkingBudget: 2048 };
  if (one.shaped) {
    config.responseMimeType = "application/json";
    config.responseJsonSchema = SHAPE;
  }
  for (;;) {
    const asked = { model: one.model, contents, config };
    const parts = [];
    let usage, reason;
    const take = (response) => {
      const [candidate] = response.candidates ?? [];
      parts.push(...(candidate?.content?.parts ?? []));
      reason = candidate?.finishReason ?? reason;
      usage = response.usageMetadata ?? usage;
    };
    if (one.stream)
      for await (const chunk of await client.models.generateContentStream(asked)) take(chunk);
    else take(await client.models.generateContent(asked));
    if (!reason) throw new Error("the stream ended without a reason");
    contents.push({ role: "model", parts });
    const calls = parts.filter((part) => part.functionCall).map((part) => part.functionCall);
    const said = (thought) =>
      joined(parts.filter((part) => part.text && !!part.thought === thought).map((p) => p.text));
    if (!calls.length)
      return {
        text: said(false),
        thought: said(true),
        value: one.shaped ? JSON.parse(said(false)) : null,
        usage: [
          usage.promptTokenCount,
          usage.candidatesTokenCount + (usage.thoughtsTokenCount ?? 0),
        ],
      };
    contents.push({
      role: "user",
      parts: calls.map((call) => ({
        functionResponse: {
          id: call.id,
          name: call.name,
          response: { output: runTool(one, call.name, call.args) },
        },
      })),
    });
  }
}

// Vercel AI SDK

const MODELS = {
  "aisdk-chat": (one) => createOpenAI({ baseURL: one.base + "/v1", apiKey: one.key }).chat(one.model),
  "aisdk-responses": (one) =>
    createOpenAI({ baseURL: one.base + "/v1", apiKey: one.key }).responses(one.model),
  "aisdk-compatible": (one) =>
    createOpenAICompatible({
      name: "weft",
      baseURL: one.base + "/v1",
      apiKey: one.key,
      includeUsage: true,
      supportsStructuredOutputs: true,
    })(one.model),
  "aisdk-anthropic": (one) =>
    createAnthropic({ baseURL: one.base + "/v1", apiKey: one.key })(one.model),
  "aisdk-google": (one) =>
    createGoogleGenerativeAI({ baseURL: one.base + "/v1beta", apiKey: one.key })(
      "models/" + one.model,
    ),
};
const THINKING = {
  openai: { reasoningEffort: "low", reasoningSummary: "auto", forceReasoning: true, store: false },
  weft: { reasoningEffort: "low" },
  anthropic: { thinking: { type: "enabled", budgetTokens: 2048 } },
  google: { thinkingConfig: { includeThoughts: true, thinkingBudget: 2048 } },
};

const aiSdk = (name) => async (one) => {
  const tools = Object.fromEntries(
    NAMES.map((tool) => [
      tool,
      ai.tool({
        description: ABOUT[tool],
        inputSchema: z.object({ [KEYS[tool]]: z.string() }),
        execute: async (given) => runTool(one, tool, given),
      }),
    ]),
  );
  const asked = {
    model: MODELS[name](one),
    system: BRIEF,
    prompt: one.prompt,
    maxRetries: 0,
    ...(one.tools ? { tools, stopWhen: ai.stepCountIs(5) } : {}),
    ...(one.thinks ? { providerOptions: THINKING } : { providerOptions: { openai: { store: false } } }),
    ...(one.shaped ? { output: ai.Output.object({ schema: Forecast }) } : {}),
  };
  let problem;
  const done = one.stream
    ? ai.streamText({ ...asked, onError: ({ error }) => (problem ??= error) })
    : await ai.generateText(asked);
  try {
    if (one.stream) await done.consumeStream();
    const reason = await done.finishReason;
    if (problem) throw problem;
    if (reason === "error") throw new Error("finished with an error");
    const usage = await done.usage;
    return {
      text: await done.text,
      thought: await done.reasoningText,
      value: one.shaped ? await done.output : null,
      usage: [usage.inputTokens, usage.outputTokens],
    };
  } catch (error) {
    throw problem ?? error;
  }
};

// @openai/agents

agents.setTracingDisabled(true);
const agentsSdk = (api) => async (one) => {
  const client = new OpenAI({ baseURL: one.base + "/v1", apiKey: one.key, maxRetries: 0 });
  const Model = api === "chat" ? agents.OpenAIChatCompletionsModel : agents.OpenAIResponsesModel;
  const tools = NAMES.map((name) =>
    agents.tool({
      name,
      description: ABOUT[name],
      parameters: z.object({ [KEYS[name]]: z.string() }),
      execute: async (given) => runTool(one, name, given),
    }),
  );
  const settings = { store: false };
  if (one.thinks) settings.reasoning = { effort: "low", summary: "auto" };
  if (one.thinks && api === "responses")
    settings.providerData = { include: ["reasoning.encrypted_content"] };
  const agent = new agents.Agent({
    name: "a",
    instructions: BRIEF,
    model: new Model(client, one.model),
    modelSettings: settings,
    tools: one.tools ? tools : [],
    ...(one.shaped ? { outputType: Forecast } : {}),
  });
  const result = await agents.run(agent, one.prompt, { stream: one.stream });
  if (one.stream) {
    for await (const event of result) void event;
    await result.completed;
    if (result.error) throw result.error;
  }
  const usage = result.state?.usage ?? result.runContext?.usage ?? result.state?._context?.usage;
  const thoughts = result.newItems
    .filter((item) => item.type === "reasoning_item")
    .flatMap((item) => [...item.rawItem.content, ...(item.rawItem.rawContent ?? [])])
    .map((part) => part.text);
  return {
    text: one.shaped ? JSON.stringify(result.finalOutput) : result.finalOutput,
    thought: joined(thoughts.slice(-1)),
    value: one.shaped ? result.finalOutput : null,
    usage: usage ? [usage.inputTokens, usage.outputTokens] : null,
  };
};

const CLIENTS = {
  "node-openai-chat": openaiChat,
  "node-openai-responses": openaiResponses,
  "node-anthropic": anthropic,
  "node-genai": genai,
  ...Object.fromEntries(Object.keys(MODELS).map((name) => [name, aiSdk(name)])),
  "agents-js-chat": agentsSdk("chat"),
  "agents-js-responses": agentsSdk("responses"),
};

const spelled = (one) => (one instanceof Error ? String(one) : JSON.stringify(one));

function told(error) {
  const seen = [];
  for (let one = error; one && seen.length < 5; one = one.cause) seen.push(one);
  const status = seen.map((one) => one.status ?? one.statusCode).find((s) => typeof s === "number");
  return { status, message: seen.map(spelled).join(" / "), data: String(seen[0]?.responseBody ?? "") };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const one = { ...JSON.parse(line), ran: [] };
  let outcome;
  try {
    outcome = { outcome: await CLIENTS[one.client](one) };
  } catch (error) {
    outcome = { error: told(error) };
  }
  process.stdout.write(JSON.stringify({ ...outcome, ran: one.ran }) + "\n");
}
