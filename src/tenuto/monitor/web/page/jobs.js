// The list of jobs: filter, chips, sorting, columns, marks and what can be done to what is marked.
// Rows that are known change in place; which rows there are is asked for at once, then every half second.

import { get, Refused } from "./api.js";
import { ACTIONS, ask, fits } from "./ask.js";
import { h, put, say } from "./dom.js";
import { countMarks, groupChoice, throttled } from "./parts.js";
import { Table } from "./table.js";
import { address, duration, energy, groupName, percent, short, shortTask, stateWords, UNKNOWN } from "./text.js";

/** @import { Delta, Groups, Job, Jobs, Place, View } from "./types.js" */
/** @import { Column } from "./table.js" */

const FIELDS = ["state", "task", "id", "reason", "message", "attempt", "submitted", "started", "ended", "duration", "progress"];
const HIDDEN = "tenuto-hidden-columns";
const MOST_TAGS = 6;

/** @type {Column[]} */
const FIRST = [
  { name: "id", label: "Id", width: 92, sort: "id", text: (job) => job.name },
  { name: "task", label: "Task", width: 130, sort: "task", text: (job) => shortTask(job.task) },
  { name: "state", label: "State", width: 120, sort: "state", text: stateWords },
  { name: "progress", label: "%", width: 56, number: true, sort: "progress", text: (job) => percent(job.progress) },
  { name: "took", label: "Took", width: 76, number: true, sort: "duration", text: (job) => duration(job.duration_s) },
  { name: "eta", label: "ETA", width: 72, number: true, text: (job) => (job.eta_s === null ? UNKNOWN : duration(job.eta_s)) },
];
/** @type {Column[]} */
const LAST = [
  { name: "where", label: "Host", width: 90, text: (job) => job.where },
  { name: "energy", label: "Energy", width: 80, number: true, text: (job) => (job.energy_kwh === null ? "" : energy(job.energy_kwh)) },
  { name: "message", label: "Message", width: 160, grow: true, text: said },
];

/** @param {Job} job */
function said(job) {
  const reason = job.state === "error" && job.reason ? `${job.reason.toUpperCase()}: ` : "";
  return job.state === "running" ? job.progress_desc ?? "" : `${reason}${job.message ?? ""}`;
}

/** @param {string} name @returns {Column} */
const tagColumn = (name) => ({ name: `tag ${name}`, label: name, width: 84, sort: name, text: (job) => new Map(Object.entries(job.tags)).get(name) ?? "" });

/** @param {Place} place @returns {Promise<View>} */
export async function jobs({ main, query, about }) {
  const chosen = query.get("group") ?? "";
  let filter = query.get("filter") ?? "";
  let sort = query.get("sort") ?? "";
  /** @type {Set<string>} */
  const tags = new Set();
  const hidden = new Set((localStorage.getItem(HIDDEN) ?? "where,energy").split(","));
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  let group = groups.find((one) => one.group === chosen);

  const go = (/** @type {Record<string, string>} */ change) => {
    location.hash = address("jobs", { group: chosen, filter, sort, ...change });
  };
  const trouble = h("p", { class: "trouble", role: "alert" });
  const total = h("span", { class: "soft", role: "status" });
  const chips = h("span", { class: "chips" });
  const choices = h("details", { class: "choices" }, h("summary", {}, "Columns"));
  const marks = h("div", { class: "marks", role: "group", "aria-label": "Marked jobs" });
  marks.hidden = true;

  const table = new Table({
    label: "Jobs",
    markable: !about.read_only,
    open: (job) => { location.hash = address("job", { key: job.key }); },
    sort: (field) => go({ sort: sort === field ? `-${field}` : sort === `-${field}` ? "" : field }),
    marks: (marked) => drawMarks(marks, [...marked.values()], () => table.unmark()),
    load: async (offset, limit) => {
      const found = await load(offset, limit);
      return { matched: found?.matched ?? 0, jobs: found?.jobs ?? [] };
    },
  });
  const columns = () => [...FIRST, ...[...tags].slice(0, MOST_TAGS).map(tagColumn), ...LAST];
  const arrange = () => table.setColumns(columns().filter(({ name }) => !hidden.has(name)), sort);

  /** @param {number} offset @param {number} limit */
  const load = async (offset, limit) => {
    try {
      const found = /** @type {Jobs} */ (await get("jobs", { group: chosen, filter, sort, offset, limit }));
      say(trouble, "");
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
      say(trouble, error.code === "bad_filter" && error.position !== undefined
        ? `${error.message} (at character ${error.position + 1})` : error.message);
      return null;
    }
  };

  const box = h("input", {
    type: "search", name: "filter", value: filter, list: "fields", placeholder: "state=error and lr<0.05", "aria-label": "Filter", autocomplete: "off", spellcheck: "false",
  });
  const form = h("form", { class: "filter", role: "search", onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    go({ filter: box.value.trim() });
  } }, box, h("datalist", { id: "fields" }, FIELDS.map((field) => h("option", { value: `${field}=` }))), h("button", { type: "submit" }, "Filter"));
  const drawChips = () => put(chips, group && countMarks(group.counts, (state) => address("jobs", { group: chosen, filter: `state=${state}`, sort })),
    filter && h("a", { class: "chip", href: address("jobs", { group: chosen, sort }) }, "no filter"));
  drawChips();
  drawChoices(choices, columns(), hidden, arrange);
  put(
    main,
    h("h1", {}, group ? `Jobs of ${groupName(group)}` : "Jobs"),
    h("div", { class: "bar" }, groupChoice(groups, chosen, (value) => go({ group: value, filter: "" }), "all groups"), form, choices, total),
    trouble, chips, table.element, marks,
  );
  arrange();
  await table.refresh();
  table.element.focus({ preventScroll: true });

  const again = throttled(() => table.refresh().catch(() => undefined), 500);
  return {
    close: () => table.close(),
    reset: again,
    delta: (delta) => {
      group = delta.groups.find((one) => one.group === chosen) ?? group;
      if (delta.groups.length) drawChips();
      if (applied(delta, table, chosen, filter !== "" || sort !== "")) again();
      if (table.marked.size) drawMarks(marks, [...table.marked.values()], () => table.unmark());
    },
  };
}

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

/** @param {HTMLElement} marks @param {Job[]} jobs @param {() => void} unmark */
function drawMarks(marks, jobs, unmark) {
  marks.hidden = jobs.length === 0;
  put(marks, h("span", { role: "status" }, `${jobs.length} marked `),
    ACTIONS.map((action) => h("button", {
      type: "button", disabled: !jobs.some((job) => fits(action, job)),
      onclick: () => void ask(action, jobs.filter((job) => fits(action, job))).then((done) => (done ? unmark() : undefined)),
    }, action)),
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

