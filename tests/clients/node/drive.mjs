// The openai SDK of Node and the AI SDK: each plays its scenarios and prints what it saw.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const [url, key] = process.argv.slice(2);
const WRONG = "a-key-that-nobody-has-made-0123456789";
const user = (content) => ({ role: "user", content });

function sdk(api) {
  const client = (key) => new OpenAI({ baseURL: url, apiKey: key });
  const chat = {
    async whole(key, messages) {
      const answer = await client(key).chat.completions.create({ model: "bot", messages });
      return answer.choices[0].message.content;
    },
    async streamed(key, messages) {
      let text = "";
      for await (const chunk of await client(key).chat.completions.create({ model: "bot", messages, stream: true }))
        text += chunk.choices[0]?.delta?.content ?? "";
      return text;
    },
    async second(key, first, second) {
      const answer = await chat.whole(key, [user(first)]);
      return await chat.whole(key, [user(first), { role: "assistant", content: answer }, user(second)]);
    },
  };
  const responses = {
    async whole(key, input) {
      return (await client(key).responses.create({ model: "bot", input })).output_text;
    },
    async streamed(key, input) {
      let text = "";
      for await (const event of await client(key).responses.create({ model: "bot", input, stream: true })) {
        if (event.type === "response.failed") return event.response.error.message;
        if (event.type === "response.output_text.delta") text += event.delta;
      }
      return text;
    },
    async second(key, first, second) {
      const before = await client(key).responses.create({ model: "bot", input: [user(first)] });
      const asked = { model: "bot", input: [user(second)], previous_response_id: before.id };
      return (await client(key).responses.create(asked)).output_text;
    },
  };
  return { chat, responses }[api];
}

function ai(model) {
  const whole = async (key, messages) => (await generateText({ model: model(key), messages })).text;
  return {
    whole,
    async streamed(key, messages) {
      let failure;
      const result = streamText({ model: model(key), messages, onError: ({ error }) => (failure = error) });
      let text = "";
      for await (const part of result.fullStream) {
        if (part.type === "text-delta") text += part.text;
        if (part.type === "error") failure = part.error;
      }
      if (failure) throw failure;
      return text;
    },
    async second(key, first, second) {
      const before = await generateText({ model: model(key), messages: [user(first)] });
      return await whole(key, [user(first), ...before.response.messages, user(second)]);
    },
  };
}

const compatible = (key) => createOpenAICompatible({ name: "tidings", baseURL: url, apiKey: key })("bot");
const clients = {
  "openai node chat": sdk("chat"),
  "openai node responses": sdk("responses"),
  "AI SDK responses": ai((key) => createOpenAI({ baseURL: url, apiKey: key })("bot")),
  "AI SDK chat": ai((key) => createOpenAI({ baseURL: url, apiKey: key }).chat("bot")),
  "AI SDK compatible": ai(compatible),
};

function words(error) {
  if (typeof error === "string") return error;
  return [error?.message, error?.responseBody, error?.data && JSON.stringify(error.data), String(error)].join(" ");
}

for (const [client, by] of Object.entries(clients)) {
  const scenarios = {
    plain: () => by.whole(key, [user(`plain ${client}`)]),
    streamed: () => by.streamed(key, [user(`streamed ${client}`)]),
    fail: () => by.whole(key, [user(`fail ${client}`)]),
    "fail-streamed": () => by.streamed(key, [user(`fail streamed ${client}`)]),
    tools: () => by.whole(key, [user(`tools ${client}`)]),
    "tools-streamed": () => by.streamed(key, [user(`tools streamed ${client}`)]),
    second: () => by.second(key, `tools first ${client}`, `second ${client}`),
    "wrong-key": () => by.whole(WRONG, [user(`wrong-key ${client}`)]),
  };
  for (const [scenario, play] of Object.entries(scenarios)) {
    let saw;
    try {
      saw = await play();
    } catch (error) {
      saw = words(error);
    }
    console.log(JSON.stringify({ client, scenario, saw: String(saw) }));
  }
}
