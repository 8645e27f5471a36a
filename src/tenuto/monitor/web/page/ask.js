// Actions on jobs: asked first in a dialog that names each attempt, then sent with that attempt, then told.
// It decides nothing: the server refuses what does not fit the job as it is now.

import { act, Refused } from "./api.js";
import { h, put, say } from "./dom.js";
import { awaitChange, clock, nameOfKey } from "./text.js";

/** @import { Child, Job, Outcome } from "./types.js" */

export const ACTIONS = ["Kill", "Retry", "Clean"];
const AWAITED = new Map([["asked", "stopping …"], ["retried", "starting …"], ["deleted", "deleted"]]);
const CONSEQUENCES = new Map([
  ["Cancel", "The job is taken out of its queue; it does not run."],
  ["Kill", "The running attempt is stopped; what it wrote stays."],
  ["Retry", "A new attempt is started in the same directory."],
  ["Clean", "The directory is deleted, with all that the job wrote. This cannot be undone."],
]);
const SENTENCES = new Map([
  ["asked", "was asked to stop"],
  ["retried", "is tried again"],
  ["deleted", "was deleted"],
  ["not_running", "does not run"],
  ["starting", "is just starting: try again in a moment"],
  ["elsewhere", "runs on another machine: act there"],
  ["in_use", "is in use by a run"],
  ["gone", "is gone"],
  ["refused", "refused"],
]);
const MOST_NAMED = 12;

/**
 * True if an action makes sense for a job as it is shown.
 * @param {string} action @param {Job} job
 */
export const fits = (action, job) => refusal(action, job) === "";

/**
 * Why an action makes no sense for a job as it is shown; empty if it does.
 * @param {string} action @param {Job} job
 */
export function refusal(action, job) {
  const isFinal = job.state === "done" || job.state === "error";
  if (action === "Kill" && job.state === "unscheduled") return "No driver would start it: there is nothing to cancel.";
  if (action === "Kill") return isFinal ? "It has ended." : "";
  if (action === "Retry") return job.state === "error" ? "" : "Only a job that failed is tried again.";
  return isFinal ? "" : "Only a job that has ended can be deleted.";
}

/**
 * What an action is called for a job: what waits is cancelled, what runs is killed.
 * @param {string} action @param {Job[]} jobs
 */
export const actionWord = (action, jobs) => (action === "Kill" && jobs.length > 0 && jobs.every((job) => !["running", "done", "error"].includes(job.state)) ? "Cancel" : action);

/**
 * Asks, acts and tells; the answer is true if the person agreed.
 * @param {string} action
 * @param {Job[]} jobs
 */
export async function ask(action, jobs) {
  return await askFor(action, jobs, actionWord(action, jobs));
}

/**
 * As `ask`, for targets that are known by key and attempt only.
 * @param {string} action @param {{key: string, attempt: number, state?: string}[]} jobs @param {string} [word]
 */
export async function askFor(action, jobs, word = action) {
  const targets = jobs.map(({ key, attempt }) => ({ key, attempt }));
  if (!targets.length || !(await agreed(word, targets))) return false;
  tell(`${word}: asked …`);
  try {
    const outcomes = await act(action.toLowerCase(), targets);
    const seen = new Map(jobs.map((job) => [job.key, job]));
    for (const { key, outcome } of outcomes) {
      const [job, words] = [seen.get(key), AWAITED.get(outcome)];
      if (job && words) awaitChange(job, words);
    }
    tell(told(targets, outcomes));
  } catch (error) {
    tell(error instanceof Refused || error instanceof Error ? `Nothing was done: ${error.message}` : String(error));
  }
  return true;
}

/**
 * @param {string} action
 * @param {{key: string, attempt: number}[]} targets
 * @returns {Promise<boolean>}
 */
function agreed(action, targets) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  const { promise, resolve } = Promise.withResolvers();
  const named = targets.slice(0, MOST_NAMED).map(({ key, attempt }) =>
    h("li", {}, h("b", {}, nameOfKey(key)), attempt > 0 ? `, attempt ${attempt}` : ", never started"));
  const more = targets.length - named.length;
  const count = targets.length === 1 ? "this job" : `${targets.length} jobs`;
  const cancel = h("button", { type: "button", onclick: () => dialog.close("") }, action === "Cancel" ? "Leave it" : "Cancel");
  put(
    dialog,
    h("h2", { id: "dialog-title" }, `${action} ${count}?`),
    h("ul", { class: "named" }, named, more > 0 && h("li", {}, `and ${more} more`)),
    h("p", {}, CONSEQUENCES.get(action)),
    h("p", { class: "buttons" }, cancel,
      h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, action)),
  );
  dialog.returnValue = "";
  dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  dialog.showModal();
  cancel.focus();
  return promise;
}

/**
 * @param {{key: string, attempt: number}[]} targets
 * @param {Outcome[]} outcomes
 */
function told(targets, outcomes) {
  const seen = new Map(targets.map(({ key, attempt }) => [key, attempt]));
  if (outcomes.length > 3) return counted(outcomes);
  return outcomes.map((one) => {
    const name = nameOfKey(one.key);
    if (one.outcome === "stale") {
      const now = one.attempt > 0 ? `it is at attempt ${one.attempt} now` : "it has changed";
      return `Nothing was done: you saw ${name} at attempt ${seen.get(one.key)}, ${now}.`;
    }
    const detail = one.detail ? ` (${one.detail})` : "";
    return `${name} ${SENTENCES.get(one.outcome) ?? one.outcome}${detail}.`;
  }).join(" ");
}

/** @param {Outcome[]} outcomes */
function counted(outcomes) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { outcome } of outcomes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  return [...counts].map(([outcome, number]) => `${number} ${outcome.replaceAll("_", " ")}`).join(", ");
}

let clearing = 0;
/** @type {string[]} */
const done = [];

/** What was said in this tab, the last first. */
export function showDone() {
  inform("What was done here", done.length ? h("ul", { class: "named" }, done.map((one) => h("li", {}, one))) : h("p", { class: "soft" }, "Nothing yet."));
}

/**
 * A dialog that only tells.
 * @param {string} title @param {...Child} content
 */
export function inform(title, ...content) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  const close = h("button", { type: "button", onclick: () => dialog.close("") }, "Close");
  put(dialog, h("h2", { id: "dialog-title" }, title), content, h("p", { class: "buttons" }, close));
  dialog.showModal();
  close.focus();
}

/** @param {string} sentence */
export function tell(sentence) {
  if (!sentence.endsWith("…") && sentence !== "Copied.") done.unshift(`${clock(Date.now())} ${sentence}`);
  done.splice(50);
  const said = /** @type {HTMLElement} */ (document.getElementById("said"));
  say(said, sentence);
  clearTimeout(clearing);
  clearing = setTimeout(() => say(said, ""), 15_000);
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied.");
  } catch {
    tell("The browser does not let this page copy: select the text instead.");
  }
}
