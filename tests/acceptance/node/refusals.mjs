// What is refused: the errors that the official client for Node makes of it, and how often it sends such a call.
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";
import { chat, check, connect, CHAT, jsonl, refusal, started, submit } from "./harness.mjs";

const NOBODY = "batch_" + "0".repeat(32);

/** Call what must be refused, and hold the error and what was sent against what is promised. */
async function refused(call, kind, status, code, param) {
  const { client, sent } = connect({ maxRetries: 2 });
  const error = await refusal(() => call(client));
  assert.ok(error instanceof kind, `${error}`);
  assert.deepEqual([error.status, error.code, error.param], [status, code, param]);
  assert.match(error.requestID, /^req_|^[!-~]{1,128}$/);
  assert.equal(error.requestID, error.headers.get("x-request-id"));
  assert.ok(error.message.length > status.toString().length + 10, error.message);
  assert.equal(typeof error.type, "string");
  assert.equal(sent.length, 1, JSON.stringify(sent));
}

check("an unknown batch is not found, for every verb", async () => {
  for (const verb of ["retrieve", "cancel"]) {
    await refused((client) => client.batches[verb](NOBODY), OpenAI.NotFoundError, 404, "batch_not_found", null);
  }
});

check("an unknown input file is a wrong parameter", async () => {
  const given = { input_file_id: "file-none", endpoint: CHAT, completion_window: "24h" };
  const call = (client) => client.batches.create(given);
  await refused(call, OpenAI.BadRequestError, 400, "file_not_found", "input_file_id");
});

check("a wrong parameter is named", async () => {
  const file = await connect().client.files.create({ file: await toFile(jsonl(chat("a", "x")), "a"), purpose: "batch" });
  const given = { input_file_id: file.id, endpoint: CHAT, completion_window: "24h" };
  const wrong = { endpoint: "/v1/images", completion_window: "soon", metadata: { a: 1 } };
  for (const [name, value] of Object.entries(wrong)) {
    const call = (client) => client.batches.create({ ...given, [name]: value });
    await refused(call, OpenAI.BadRequestError, 400, "invalid_parameter", name === "metadata" ? "metadata" : name);
  }
});

check("a file with nothing in it is refused", async () => {
  const call = async (client) => client.files.create({ file: await toFile("", "a"), purpose: "batch" });
  await refused(call, OpenAI.BadRequestError, 400, "empty_file", "file");
});

check("a list parameter out of its range is refused", async () => {
  const call = (client) => client.batches.list({ limit: 101 });
  await refused(call, OpenAI.BadRequestError, 400, "invalid_parameter", "limit");
  const behind = (client) => client.batches.list({ after: NOBODY });
  await refused(behind, OpenAI.BadRequestError, 400, "invalid_parameter", "after");
});

check("what is too large is refused once", async () => {
  const given = { bytes: 2 ** 40, filename: "a", mime_type: "b", purpose: "batch" };
  await refused((client) => client.uploads.create(given), OpenAI.APIError, 413, "too_large", "bytes");
});

check("an address that does not exist is refused in the same shape", async () => {
  await refused((client) => client.get("/nowhere"), OpenAI.NotFoundError, 404, "not_found", null);
  await refused((client) => client.delete("/batches"), OpenAI.APIError, 405, "method_not_allowed", null);
});

check("a conflict that will not pass is sent once", async () => {
  const { client } = connect();
  const running = await submit(client, [chat("a", "[slow 3] conflict")]);
  await started(client, running);
  const call = (other) => other.delete(`/batches/${running.id}`);
  await refused(call, OpenAI.ConflictError, 409, "batch_running", null);
  const again = { input_file_id: running.input_file_id, endpoint: CHAT, completion_window: "24h" };
  const twice = (other) => other.batches.create(again);
  await refused(twice, OpenAI.BadRequestError, 400, "duplicate_batch", "input_file_id");
});

check("a create that is sent twice under a key makes one batch", async () => {
  const { client } = connect();
  const file = await client.files.create({ file: await toFile(jsonl(chat("a", "key")), "a"), purpose: "batch" });
  const given = { input_file_id: file.id, endpoint: CHAT, completion_window: "24h" };
  const headers = { "Idempotency-Key": "from-node" };
  const made = await Promise.all([1, 2, 3].map(() => client.batches.create(given, { headers })));
  assert.equal(new Set(made.map((batch) => batch.id)).size, 1);
  const other = (second) => second.batches.create({ ...given, metadata: { a: "b" } }, { headers });
  await refused(other, OpenAI.ConflictError, 409, "idempotency_key_reused", null);
});
