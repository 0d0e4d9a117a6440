// Batches from their creation to the lines of their results, as the official client for Node drives them.
import assert from "node:assert/strict";
import { all, chat, check, connect, CHAT, follow, results, submit } from "./harness.mjs";

const { client } = connect();

check("a new batch has everything that a client reads from the first answer on", async () => {
  const metadata = { "metadata.request_file": "requests_0.jsonl" };
  const batch = await submit(client, [chat("a", "first answer")], CHAT, { metadata });
  assert.match(batch.id, /^batch_[0-9a-f]{32}$/);
  assert.equal(batch.object, "batch");
  assert.equal(batch.status, "validating");
  assert.deepEqual(batch.metadata, metadata);
  assert.deepEqual(Object.values(batch.request_counts).map(Number.isInteger), [true, true, true]);
  for (const name of ["output_file_id", "error_file_id", "errors", "completed_at", "cancelling_at"]) {
    assert.equal(batch[name], null, name);
  }
  await follow(client, batch);
});

check("chats run from the upload to the output file", async () => {
  const batch = await follow(client, await submit(client, [chat("a", "one"), chat("b", "two")]));
  assert.equal(batch.status, "completed");
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  assert.equal(batch.error_file_id, null);
  const found = await results(client, batch.output_file_id);
  for (const [id, text] of [["a", "one"], ["b", "two"]]) {
    assert.equal(found[id].error, null);
    assert.equal(found[id].response.status_code, 200);
    assert.match(found[id].response.request_id, /^req_/);
    const body = found[id].response.body;
    assert.deepEqual([body.object, body.model], ["chat.completion", "test-model"]);
    assert.equal(body.choices[0].message.content, `echo: ${text}`);
  }
});

check("completions and embeddings run as chats do", async () => {
  const run = async (url, body) => {
    const line = { custom_id: "x", method: "POST", url, body: { model: "test-model", ...body } };
    const batch = await follow(client, await submit(client, [line], url));
    assert.deepEqual([batch.status, batch.endpoint], ["completed", url]);
    return (await results(client, batch.output_file_id)).x.response.body;
  };
  const completion = await run("/v1/completions", { prompt: "once upon" });
  assert.deepEqual([completion.object, completion.choices[0].text], ["text_completion", "echo: once upon"]);
  const embedding = await run("/v1/embeddings", { input: "a text" });
  assert.deepEqual([embedding.object, embedding.data[0].embedding], ["list", [0.25, -0.5]]);
});

check("failed requests are in the error file and the others in the output file", async () => {
  const lines = [chat("good", "fine"), chat("bad", "[status 400] no")];
  const batch = await follow(client, await submit(client, lines));
  assert.deepEqual([batch.status, batch.request_counts.failed], ["completed", 1]);
  assert.deepEqual(Object.keys(await results(client, batch.output_file_id)), ["good"]);
  const { bad } = await results(client, batch.error_file_id);
  assert.equal(bad.response, null);
  assert.deepEqual([typeof bad.error.code, typeof bad.error.message], ["string", "string"]);
});

check("a refused input tells every bad line with its number", async () => {
  const lines = [chat("a", "one"), chat("a", "two"), chat("b", "three", { stream: true })];
  const batch = await follow(client, await submit(client, lines));
  assert.deepEqual([batch.status, batch.output_file_id, batch.error_file_id], ["failed", null, null]);
  const told = batch.errors.data.map((error) => [error.code, error.line, error.param]).sort();
  const wanted = [["duplicate_custom_id", 2, "custom_id"], ["streaming_not_supported", 3, "body.stream"]];
  assert.deepEqual(told, wanted);
  assert.equal(batch.errors.object, "list");
});

check("the pager walks every batch once, newest first", async () => {
  const made = [];
  for (let i = 0; i < 5; i++) made.push((await submit(client, [chat("a", `page ${i}`)])).id);
  const seen = (await all(client.batches.list({ limit: 2 }))).map((batch) => batch.id);
  assert.equal(new Set(seen).size, seen.length);
  assert.deepEqual(seen.slice(0, 5), made.toReversed());
  assert.deepEqual((await all(client.batches.list())).map((batch) => batch.id), seen);
});

check("a cancelled batch says so at once and keeps what ran", async () => {
  const lines = Array.from({ length: 40 }, (_, i) => chat(`s-${i}`, `[slow 2] node ${i}`));
  const running = await follow(client, await submit(client, lines), (seen) => seen.status === "in_progress");
  const cancelled = await client.batches.cancel(running.id);
  assert.ok(["cancelling", "cancelled"].includes(cancelled.status));
  assert.ok(cancelled.cancelling_at > 0);
  const ended = await follow(client, cancelled);
  assert.deepEqual([ended.status, ended.cancelling_at], ["cancelled", cancelled.cancelling_at]);
  assert.ok(ended.cancelled_at >= ended.cancelling_at);
  assert.deepEqual(await client.batches.cancel(ended.id), ended);
  const answered = ended.output_file_id === null ? {} : await results(client, ended.output_file_id);
  const left = ended.error_file_id === null ? {} : await results(client, ended.error_file_id);
  assert.equal(Object.keys(answered).length, ended.request_counts.completed);
  assert.equal(Object.keys(answered).length + Object.keys(left).length, 40);
});
