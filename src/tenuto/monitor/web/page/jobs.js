// The list of jobs: chips, sorting, columns, marks and what can be done to what is marked, and a job beside it.
// Rows that are known change in place; which rows there are is asked for at once, then every half second.

import { again as followAgain, get, Refused } from "./api.js";
import { ACTIONS, actionWord, ask, copy, fits, refusal } from "./ask.js";
import { h, put, say } from "./dom.js";
import { JobPanel } from "./job.js";
import { countMarks, csv, download, empty, groupChoice, throttled } from "./parts.js";
import { Table } from "./table.js";
import { address, ago, duration, energy, filterOf, filterValue, groupName, percent, short, shortTask, STATES, stateWords, UNKNOWN } from "./text.js";

/** @import { Delta, Groups, Job, Jobs, Place, State, View } from "./types.js" */
/** @import { Column } from "./table.js" */

const HIDDEN = "tenuto-hidden-columns";
const MOST_TAGS = 6;
const MOST_MARKED = 10_000;
const MOST_COMPARED = 6;

/** @type {Column[]} */
const FIRST = [
  { name: "id", label: "Id", width: 92, sort: "id", text: (job) => job.name },
  { name: "task", label: "Task", width: 130, sort: "task", text: (job) => shortTask(job.task) },
  { name: "state", label: "State", width: 150, sort: "state", text: (job) => (job.state === "error" && job.reason ? stateWords(job).replace(/ error.*/, ` ${job.reason === "dependency" ? "not run" : job.reason}`) : stateWords(job)) },
  { name: "progress", label: "%", width: 64, number: true, sort: "progress", text: (job) => percent(job.progress) },
  { name: "took", label: "Took", width: 76, number: true, sort: "duration", text: (job) => duration(job.duration_s) },
  { name: "eta", label: "ETA", width: 76, number: true, text: (job) => (job.eta_s === null ? UNKNOWN : duration(job.eta_s)) },
];
/** @type {Column[]} */
const LAST = [
  { name: "submitted", label: "Submitted", width: 100, sort: "submitted", text: (job) => ago(job.submitted) },
  { name: "where", label: "Host", width: 90, text: (job) => job.where },
  { name: "energy", label: "Energy", width: 80, number: true, text: (job) => (job.energy_kwh === null ? "" : energy(job.energy_kwh)) },
  { name: "message", label: "Message", width: 160, grow: true, text: said },
];

/** @param {Job} job */
function said(job) {
  return job.state === "running" ? job.progress_desc ?? "" : job.message ?? "";
}

/** @param {Job} job */
const second = (job) => [percent(job.progress), job.duration_s === null ? "" : duration(job.duration_s), Object.entries(job.tags).map(([name, value]) => `${name}=${value}`).join(" "), said(job)].filter(Boolean).join(" · ");

/** @param {string} name @returns {Column} */
const tagColumn = (name) => ({ name: `tag ${name}`, label: name, width: 84, sort: name, text: (job) => new Map(Object.entries(job.tags)).get(name) ?? "" });

/** @param {Place} place @returns {Promise<View>} */
export async function jobs({ main, query, about, trouble }) {
  const chosen = query.get("group") ?? "";
  const filter = query.get("filter") ?? "";
  const sort = query.get("sort") ?? "";
  /** @type {Set<string>} */
  const tags = new Set();
  const hidden = new Set((localStorage.getItem(HIDDEN) ?? "where,energy,submitted").split(","));
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  const wide = matchMedia("(min-width: 1100px)");
  /** @type {JobPanel | null} */
  let panel = null;

  const go = (/** @type {Record<string, string>} */ change) => {
    location.hash = address("jobs", { group: chosen, filter, sort, ...change });
  };
  const total = h("span", { class: "soft", role: "status" });
  const chips = h("span", { class: "chips" });
  const choices = h("details", { class: "choices" }, h("summary", {}, "Columns"));
  const marks = h("div", { class: "marks", role: "group", "aria-label": "Marked jobs" });
  const beside = h("aside", { class: "peek", "aria-label": "Job", hidden: true });
  marks.hidden = true;

  const close = () => {
    panel?.close();
    panel = null;
    beside.hidden = true;
    put(beside);
    followAgain();
  };
  /** @param {Job} job */
  const open = (job) => { location.hash = address("job", { key: job.key }); };
  /** @param {Job} job @param {boolean} [isKey] */
  const peek = async (job, isKey = false) => {
    if (!wide.matches) return isKey ? undefined : open(job);
    if (panel?.key === job.key || (isKey && !panel)) return;
    panel?.close();
    const mine = panel = new JobPanel(job.key, about, { isSmall: true });
    const closing = h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "✕");
    await mine.load();
    if (panel !== mine) return;
    put(beside, h("div", { class: "bar" }, h("a", { class: "button", href: address("job", { key: job.key }) }, "open"), h("span", { class: "grow" }), closing), mine.element);
    beside.hidden = false;
    mine.begin();
  };
  let isPressed = false;
  const table = new Table({
    label: "Jobs",
    markable: true,
    open,
    second,
    point: (job) => void peek(job, isPressed).catch(() => undefined),
    sort: (field) => go({ sort: sort === field ? `-${field}` : sort === `-${field}` ? "" : field }),
    marks: () => redrawMarks(),
    load: async (offset, limit) => {
      const found = await load(offset, limit);
      return { matched: found?.matched ?? 0, jobs: found?.jobs ?? [] };
    },
  });
  table.element.addEventListener("keydown", () => { isPressed = true; }, true);
  table.element.addEventListener("pointerdown", () => { isPressed = false; }, true);
  const markMatching = async () => {
    /** @type {Job[]} */
    const found = [];
    for (let offset = 0; offset < Math.min(table.matched, MOST_MARKED); offset += 1000) {
      const part = /** @type {Jobs} */ (await get("jobs", { group: chosen, filter, sort, offset, limit: 1000 }));
      found.push(...part.jobs);
    }
    table.markAll(found);
  };
  const split = h("div", { class: "split" }, table.element, beside);
  const redrawMarks = () => drawMarks(marks, [...table.marked.values()], table.matched, () => table.unmark(), markMatching, about.read_only);
  const columns = () => [...FIRST, ...[...tags].slice(0, MOST_TAGS).map(tagColumn), ...LAST];
  const arrange = () => table.setColumns(columns().filter(({ name }) => !hidden.has(name)), sort);
  const nothing = h("div", { hidden: true }, filter ? [empty("No job matches this search.", undefined), h("p", { class: "empty" }, h("a", { class: "button", href: address("jobs", { group: chosen, sort }) }, "show all jobs"))] : empty("No jobs here yet. Run an experiment in this workspace:", "tenuto run script.py"));

  /** @param {number} offset @param {number} limit */
  const load = async (offset, limit) => {
    try {
      const found = /** @type {Jobs} */ (await get("jobs", { group: chosen, filter, sort, offset, limit }));
      trouble("");
      nothing.hidden = found.matched > 0;
      split.classList.toggle("bare", !found.matched);
      say(total, `${short(found.matched)} of ${short(found.total)} jobs${found.known < found.total ? `, ${short(found.known)} seen so far` : ""}`);
      const before = tags.size;
      for (const job of found.jobs) for (const name of Object.keys(job.tags)) if (tags.size < 40) tags.add(name);
      if (tags.size !== before) {
        drawChoices(choices, columns(), hidden, arrange);
        arrange();
      }
      return found;
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      trouble(error.message, error.code === "bad_filter" ? error.position : undefined);
      return null;
    }
  };

  /** @type {Map<string, Record<State, number>>} */
  const counted = new Map(groups.filter((one) => !chosen || one.group === chosen).map((one) => [one.group, one.counts]));
  const drawChips = () => {
    /** @type {Partial<Record<State, number>>} */
    const sum = {};
    for (const state of STATES) for (const counts of counted.values()) sum[state] = (sum[state] ?? 0) + (counts[state] ?? 0);
    put(chips, countMarks(sum, (state) => address("jobs", { group: chosen, filter: `state=${state}`, sort })),
      filter && h("a", { class: "chip", href: address("jobs", { group: chosen, sort }) }, "✕ ", h("code", {}, filter)),
      h("button", { type: "button", class: "quiet", onclick: () => void copy(commandOf(chosen, filter, sort)) }, "copy as command"));
  };
  drawChips();
  drawChoices(choices, columns(), hidden, arrange);
  const group = groups.find((one) => one.group === chosen);
  put(
    main,
    h("div", { class: "bar" }, h("h1", {}, group ? `Jobs of ${groupName(group)}` : "Jobs"), groupChoice(groups, chosen, (value) => go({ group: value, filter: "" }), "everything"), total, h("span", { class: "grow" }), choices),
    chips, split, nothing, marks,
  );
  arrange();
  await table.refresh();
  if (!document.activeElement?.closest("#search")) table.element.focus({ preventScroll: true });

  const again = throttled(() => table.refresh().catch(() => undefined), 500);
  const current = () => table.at(table.active);
  return {
    close: () => { table.close(); close(); },
    reset: () => { again(); panel?.soon(); },
    log: (part) => panel?.log.take(part),
    metrics: () => panel?.shown?.soon(),
    press: (key) => {
      const job = current();
      const action = new Map([["K", "Kill"], ["R", "Retry"], ["D", "Clean"]]).get(key);
      const several = [...table.marked.values()];
      if (key === "Escape" && panel) close();
      else if (key === "x" && several.length > 1) location.hash = compareAddress(several);
      else if (!job) return false;
      else if (key === "l" || key === "w") void peek(job).then(() => (key === "l" ? panel?.log.lines : panel?.facts)?.focus());
      else if (action && !about.read_only) void ask(action, (several.length ? several : [job]).filter((one) => fits(action, one)));
      else return false;
      return true;
    },
    delta: (delta) => {
      for (const one of delta.groups) if (!chosen || one.group === chosen) counted.set(one.group, one.counts);
      if (delta.groups.length) drawChips();
      if (applied(delta, table, chosen, filter !== "" || sort !== "")) again();
      if (table.marked.size) redrawMarks();
      panel?.delta(delta);
    },
  };
}

/**
 * The command line that lists the same jobs.
 * @param {string} group @param {string} filter @param {string} sort
 */
function commandOf(group, filter, sort) {
  const asked = [group && `group=${filterValue(group)}`, filter && (group ? `(${filterOf(filter)})` : filterOf(filter))].filter(Boolean).join(" and ");
  return `tenuto jobs${asked ? ` '${asked.replaceAll("'", `'\\''`)}'` : ""}${sort ? ` --sort ${sort}` : ""}`;
}

/** @param {Job[]} jobs */
const compareAddress = (jobs) => `#/compare?${jobs.slice(0, MOST_COMPARED).map((job) => `key=${encodeURIComponent(job.key)}`).join("&")}`;

/**
 * Rows that are known, changed in place; true if which rows there are may have changed too.
 * @param {Delta} delta @param {Table} table @param {string} group @param {boolean} chosen
 */
function applied(delta, table, group, chosen) {
  let isNew = (delta.many ?? []).some((one) => !group || one === group);
  isNew ||= delta.gone.some((one) => !group || one.group === group);
  for (const job of delta.jobs) {
    if (group && job.group !== group) continue;
    if (!table.update(job) || chosen) isNew = true;
  }
  return isNew;
}

/** @param {HTMLElement} marks @param {Job[]} jobs @param {number} matched @param {() => void} unmark @param {() => Promise<void>} all @param {boolean} readOnly */
function drawMarks(marks, jobs, matched, unmark, all, readOnly) {
  marks.hidden = jobs.length === 0;
  const names = ["key", "task", "id", "state", "reason", "message", "attempt", "submitted", "started", "ended", "duration_s"];
  put(marks, h("span", { role: "status" }, `${jobs.length} marked `),
    jobs.length < matched && h("button", { type: "button", onclick: () => void all() }, matched > MOST_MARKED ? `mark the first ${short(MOST_MARKED)}` : `mark all ${short(matched)} that match`),
    !readOnly && ACTIONS.map((action) => {
      const some = jobs.filter((job) => fits(action, job));
      const word = actionWord(action, some);
      return h("button", { type: "button", disabled: some.length === 0, title: some.length === 0 && jobs[0] ? refusal(action, jobs[0]) : undefined,
        onclick: () => void ask(action, some).then((done) => (done ? unmark() : undefined)) }, some.length > 0 && some.length < jobs.length ? `${word} ${some.length}` : word);
    }),
    h("a", { class: "button", href: jobs.length > 1 && jobs.length <= MOST_COMPARED ? compareAddress(jobs) : undefined, "aria-disabled": jobs.length < 2 || jobs.length > MOST_COMPARED ? "true" : undefined, title: "two to six jobs" }, "Compare"),
    h("button", { type: "button", onclick: () => download("jobs.csv", csv(names, /** @type {Record<string, unknown>[]} */ (/** @type {unknown} */ (jobs))), "text/csv") }, "CSV"),
    h("button", { type: "button", onclick: () => download("jobs.json", JSON.stringify(jobs, null, 1), "application/json") }, "JSON"),
    h("button", { type: "button", class: "quiet", onclick: unmark }, "unmark all"));
}

/** @param {HTMLElement} choices @param {Column[]} columns @param {Set<string>} hidden @param {() => void} arrange */
function drawChoices(choices, columns, hidden, arrange) {
  put(choices, h("summary", {}, "Columns"), h("div", { class: "menu" }, columns.slice(3).map(({ name, label }) => {
    const box = h("input", { type: "checkbox", checked: !hidden.has(name), onchange: () => {
      if (box.checked) hidden.delete(name);
      else hidden.add(name);
      localStorage.setItem(HIDDEN, [...hidden].join(","));
      arrange();
    } });
    return h("label", {}, box, ` ${label}`);
  })));
}
