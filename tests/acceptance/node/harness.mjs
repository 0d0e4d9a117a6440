// What the checks share: a client that counts what it really sends, input files, and waiting for the end of a batch.
import OpenAI, { toFile } from "openai";
import { setTimeout as pause } from "node:timers/promises";

export const CHAT = "/v1/chat/completions";
const FINAL = ["completed", "failed", "expired", "cancelled"];

export const checks = [];

/** A promise of the product, and the function that throws where it is broken. */
export function check(promise, keeps) {
  checks.push([promise, keeps]);
}

/** The official client; `sent` holds every HTTP request it made, repeated ones too. */
export function connect(options = {}) {
  const sent = [];
  const counted = async (url, init) => {
    const response = await fetch(url, init);
    const retry = new Headers(init.headers).get("x-stainless-retry-count");
    sent.push({ method: init.method, path: new URL(url).pathname, status: response.status, retry });
    return response;
  };
  const client = new OpenAI({ baseURL: process.env.OVERNIGHT_URL, apiKey: "unused", fetch: counted, ...options });
  return { client, sent };
}

/** One line of an input file of chats. */
export function chat(customId, text, more = {}) {
  const body = { model: "test-model", messages: [{ role: "user", content: text }], ...more };
  return { custom_id: customId, method: "POST", url: CHAT, body };
}

export function jsonl(...lines) {
  return lines.map((line) => JSON.stringify(line) + "\n").join("");
}

/** Upload these lines and make a batch of them. */
export async function submit(client, lines, endpoint = CHAT, more = {}) {
  const file = await client.files.create({ file: await toFile(jsonl(...lines), "in.jsonl"), purpose: "batch" });
  return client.batches.create({ input_file_id: file.id, endpoint, completion_window: "24h", ...more });
}

/** Ask for a batch until `there` is true of it, or until it has ended. */
export async function follow(client, batch, there = (seen) => FINAL.includes(seen.status)) {
  for (let tries = 0; tries < 600; tries++) {
    const seen = await client.batches.retrieve(batch.id);
    if (there(seen)) return seen;
    await pause(50);
  }
  throw new Error(`${batch.id} did not get there in 30 s`);
}

/** Return when a request of a batch has been sent. */
export async function started(client, batch) {
  for (let tries = 0; tries < 600; tries++) {
    const page = await client.get(`/batches/${batch.id}/results`, { query: { limit: 1 } });
    if (page.data.some((row) => row.attempts > 0)) return;
    await pause(50);
  }
  throw new Error(`${batch.id} did not start in 30 s`);
}

/** The lines of a result file by custom id. */
export async function results(client, fileId) {
  const text = await (await client.files.content(fileId)).text();
  const lines = text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
  return Object.fromEntries(lines.map((line) => [line.custom_id, line]));
}

export async function all(pages) {
  const found = [];
  for await (const item of pages) found.push(item);
  return found;
}

/** The error of a call that has to fail. */
export async function refusal(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error("the call was not refused");
}
