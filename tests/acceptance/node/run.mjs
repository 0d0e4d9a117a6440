// Runs every check in one process, one after another, and prints what became of each as one line of JSON.
import { checks } from "./harness.mjs";
import "./files.mjs";
import "./batches.mjs";
import "./refusals.mjs";

const became = {};
for (const [promise, keeps] of checks) {
  try {
    await keeps();
    became[promise] = null;
  } catch (error) {
    became[promise] = error.stack ?? String(error);
  }
}
console.log(JSON.stringify(became));
