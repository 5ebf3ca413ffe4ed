// Messages with the Anthropic SDK: a tool that the model calls, and its answer.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: process.env.WEFT_URL ?? "http://127.0.0.1:8787",
  apiKey: process.env.WEFT_KEY ?? "client",
});
const model = process.env.MODEL ?? "demo/tools";
const tools: Anthropic.Tool[] = [
  {
    name: "get_weather",
    description: "The weather in a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const messages: Anthropic.MessageParam[] = [{ role: "user", content: "What is the weather in Paris?" }];

const answer = await client.messages.stream({ model, max_tokens: 1000, messages, tools }).finalMessage();
const results: Anthropic.ToolResultBlockParam[] = [];
for (const block of answer.content) {
  if (block.type !== "tool_use") continue;
  console.log(`-- call ${block.id}: ${block.name}(${JSON.stringify(block.input)})`);
  results.push({ type: "tool_result", tool_use_id: block.id, content: "21 degrees" });
}

messages.push({ role: "assistant", content: answer.content }, { role: "user", content: results });
const final = await client.messages.create({ model, max_tokens: 1000, messages, tools });
for (const block of final.content) if (block.type === "text") console.log(block.text);
console.log(`-- ${final.stop_reason}`);
