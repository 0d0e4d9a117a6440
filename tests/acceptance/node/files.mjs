// Files and uploads, as the official client for Node sends and reads them.
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { all, chat, check, connect, jsonl, refusal } from "./harness.mjs";

const TEXT = jsonl(chat("a", "grüße, 漢字 😀"), chat("b", "two\u2028lines"));
const { client } = connect();
const upload = async (name = "in.jsonl") => client.files.create({ file: await toFile(TEXT, name), purpose: "batch" });

check("a text, bytes, a stream and a blob are stored alike", async () => {
  const folder = await mkdtemp(join(tmpdir(), "overnight-"));
  await writeFile(join(folder, "from disk.jsonl"), TEXT);
  const given = [
    await toFile(TEXT, "text.jsonl"),
    await toFile(new TextEncoder().encode(TEXT), "bytes.jsonl"),
    await toFile(Buffer.from(TEXT), "buffer.jsonl", { type: "application/jsonl" }),
    createReadStream(join(folder, "from disk.jsonl")),
    new File([TEXT], "web.jsonl", { type: "text/plain" }),
    new Response(TEXT, { headers: { "content-type": "application/jsonl" } }),
  ];
  const names = [];
  for (const file of given) {
    const stored = await client.files.create({ file, purpose: "batch" });
    names.push(stored.filename);
    assert.equal(stored.bytes, Buffer.byteLength(TEXT));
    assert.equal(stored.lines, 2);
    assert.equal(await (await client.files.content(stored.id)).text(), TEXT);
  }
  await rm(folder, { recursive: true });
  assert.deepEqual(names.slice(0, 5), ["text.jsonl", "bytes.jsonl", "buffer.jsonl", "from disk.jsonl", "web.jsonl"]);
  assert.ok(names[5].length > 0);
});

check("a file lives as long as the upload asks for", async () => {
  const expires_after = { anchor: "created_at", seconds: 172_800 };
  const file = await client.files.create({ file: await toFile(TEXT, "a.jsonl"), purpose: "batch", expires_after });
  assert.equal(file.expires_at, file.created_at + 172_800);
});

check("a file can be read the moment it is stored", async () => {
  const file = await upload();
  assert.deepEqual(await client.files.retrieve(file.id), file);
  assert.equal(file.object, "file");
  assert.equal(file.status, "processed");
  assert.equal(file.purpose, "batch");
  assert.deepEqual(await client.files.waitForProcessing(file.id), file);
});

check("the pager walks every file once, in both orders", async () => {
  const made = [];
  for (let i = 0; i < 5; i++) made.push((await upload(`page-${i}.jsonl`)).id);
  const newest = (await all(client.files.list({ purpose: "batch", limit: 2 }))).map((file) => file.id);
  const oldest = (await all(client.files.list({ purpose: "batch", limit: 2, order: "asc" }))).map((file) => file.id);
  assert.equal(new Set(newest).size, newest.length);
  assert.deepEqual(newest.slice(0, 5), made.toReversed());
  assert.deepEqual(oldest, newest.toReversed());
  assert.deepEqual((await all(client.files.list())).map((file) => file.id).slice(0, 5), made.toReversed());
});

check("the last page says that it is the last", async () => {
  await upload();
  const page = await client.files.list({ limit: 10_000 });
  assert.equal(page.has_more, false);
  assert.equal(page.hasNextPage(), false);
  const behind = await client.files.list({ after: page.data.at(-1).id });
  assert.deepEqual([behind.data, behind.has_more, behind.hasNextPage()], [[], false, false]);
});

check("a download is text, bytes or a stream", async () => {
  const file = await upload("größe.jsonl");
  const bytes = Buffer.from(TEXT);
  assert.ok(bytes.equals(Buffer.from(await (await client.files.content(file.id)).arrayBuffer())));
  const response = await client.files.content(file.id);
  assert.equal(Number(response.headers.get("content-length")), bytes.length);
  const pieces = [];
  for await (const piece of response.body) pieces.push(piece);
  assert.ok(bytes.equals(Buffer.concat(pieces)));
});

check("a deleted file is gone", async () => {
  const file = await upload();
  assert.deepEqual(await client.files.delete(file.id), { id: file.id, object: "file", deleted: true });
  for (const call of [client.files.retrieve, client.files.content, client.files.delete]) {
    const error = await refusal(() => call.call(client.files, file.id));
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "file_not_found");
  }
});

check("an upload in parts is completed in the order that is given", async () => {
  const bytes = Buffer.from(TEXT);
  const begun = await client.uploads.create({
    bytes: bytes.length,
    filename: "parts.jsonl",
    mime_type: "application/jsonl",
    purpose: "batch",
  });
  assert.deepEqual([begun.object, begun.status, begun.file ?? null], ["upload", "pending", null]);
  const send = async (part) => client.uploads.parts.create(begun.id, { data: await toFile(part, "part") });
  const last = await send(bytes.subarray(40));
  const first = await send(bytes.subarray(0, 40));
  assert.deepEqual([first.object, first.upload_id], ["upload.part", begun.id]);
  const done = await client.uploads.complete(begun.id, { part_ids: [first.id, last.id] });
  assert.equal(done.status, "completed");
  assert.deepEqual(await client.files.retrieve(done.file.id), done.file);
  assert.equal(await (await client.files.content(done.file.id)).text(), TEXT);
});

check("an upload can be given up", async () => {
  const begun = await client.uploads.create({ bytes: 5, filename: "a", mime_type: "text/plain", purpose: "batch" });
  assert.equal((await client.uploads.cancel(begun.id)).status, "cancelled");
  const error = await refusal(() => client.uploads.complete(begun.id, { part_ids: [] }));
  assert.equal(error.status, 400);
});
