// Responses and Chat Completions with the OpenAI SDK, streaming, from any upstream.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: (process.env.WEFT_URL ?? "http://127.0.0.1:8787") + "/v1",
  apiKey: process.env.WEFT_KEY ?? "client",
});
const model = process.env.MODEL ?? "demo/chat";

const stream = await client.responses.create({ model, input: "Say hello.", stream: true });
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
  if (event.type === "response.completed") console.log(`\n-- ${event.response.id}: ${event.response.status}`);
}

const chunks = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: "Say hello." }],
  stream: true,
});
for await (const chunk of chunks) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
console.log();
