// The first view: groups as cards, what runs now, failures by cause, what asks for attention.
// It is drawn from one answer of the server, and asked for again when something changed.

import { get, getIfAny } from "./api.js";
import { ask } from "./ask.js";
import { h, keyed, put, svg } from "./dom.js";
import { bar, countMarks, groupTitle, jobLink, keyLink, stateBar, stateMark, tagWords, throttled } from "./parts.js";
import { address, clock, duration, energy, percent, short, STATES } from "./text.js";

/** @import { Alarm, Archive, Child, Failure, Group, History, Job, Overview, Place, View } from "./types.js" */

/** @param {Place} place @returns {Promise<View>} */
export async function overview({ main, about }) {
  const where = h("p", { class: "soft" }, about.workspace);
  const cards = h("div", { class: "cards" });
  const running = h("ul", { class: "plain running" });
  const more = h("p", { class: "soft" });
  const failures = h("ul", { class: "plain" });
  const attention = h("ul", { class: "plain" });
  const alarms = h("section", { "aria-label": "Attention" }, h("h2", {}, "Attention"), attention);
  const load = async () => {
    const found = /** @type {Overview} */ (await get("overview"));
    const working = found.groups.filter((group) => group.live).length;
    put(where, about.workspace, ` · ${clock(found.now)} · `, `${working} running ${working === 1 ? "group" : "groups"}`);
    drawCards(cards, found.groups);
    keyed(running, found.running, (job) => `${job.group} ${job.key} ${changing(job)}`, runningItem);
    running.hidden = !found.running.length;
    put(more, found.running.length ? h("a", { class: "button", href: address("jobs", { filter: "state=running" }) }, "all that run") : "Nothing runs.");
    put(failures, found.failures.map((failure) => failureItem(failure, about.read_only)));
    if (!found.failures.length) put(failures, h("li", { class: "soft" }, "No failures."));
    put(attention, found.alarms.map(alarmItem));
    alarms.hidden = !found.alarms.length;
  };
  await load();
  put(
    main, h("h1", {}, "Overview"), where, cards,
    h("div", { class: "columns" },
      folded("Now running", running, more),
      folded("Failures by cause", failures)),
    alarms,
  );
  const again = throttled(() => load().catch(() => undefined), 500);
  return { delta: again, reset: again };
}

/**
 * A section that is folded on a narrow screen, where the cards come first.
 * @param {string} title @param {...Child} content
 */
const folded = (title, ...content) => h("section", { "aria-label": title },
  h("details", { open: !matchMedia("(max-width: 760px)").matches }, h("summary", {}, h("h2", {}, title)), content));

/** @param {Job} job */
const changing = (job) => `${job.attempt} ${job.state} ${percent(job.progress)} ${job.progress_desc} ${Math.round(job.eta_s ?? -1)}`;

/** @param {HTMLElement} cards @param {Group[]} groups */
function drawCards(cards, groups) {
  keyed(cards, groups, (group) => group.group, card);
  if (!groups.length) put(cards, h("p", { class: "soft" }, "No run, service or search is known here yet."));
}

/** @param {Group} group */
function card(group) {
  const facts = h("p", { class: "counts" });
  const stack = h("div", {});
  const state = h("span", { class: "badge" });
  const sparkline = h("div", { class: "sparkline" });
  const title = h("a", { href: address("jobs", { group: group.group }) }, groupTitle(group));
  const element = h(
    "article", { class: "card", "data-group": group.group },
    h("h2", {}, title, " ", state), stack, facts, sparkline);
  let drawn = "";
  let sparked = -Infinity;
  /** @param {Group} now */
  const update = (now) => {
    const news = JSON.stringify([now.counts, now.state, now.live, Math.round(now.eta_s ?? -1), now.known, now.message, now.services]);
    if (news === drawn) return;
    drawn = news;
    put(title, groupTitle(now));
    put(state, now.kind === "experiment" ? now.state : `${now.kind}, ${now.state}`);
    put(stack, stateBar(now.counts));
    put(
      facts,
      h("b", {}, `${short(now.counts.done)} of ${short(now.total)}`),
      now.known < now.total && now.live ? ` (${short(now.known)} seen) ` : " ",
      countMarks(now.counts, (one) => address("jobs", { group: now.group, filter: `state=${one}` })),
      now.eta_s !== null && h("span", {}, `ETA ${duration(now.eta_s)}`),
      now.carbon?.energy_kwh !== undefined && h("span", {}, energy(now.carbon.energy_kwh)),
      now.message && h("span", { class: "message" }, now.message),
    );
    if (performance.now() - sparked > 5000) {
      sparked = performance.now();
      void drawSparkline(sparkline, now);
    }
  };
  update(group);
  return Object.assign(element, { update });
}

/** @param {HTMLElement} place @param {Group} group */
async function drawSparkline(place, group) {
  try {
    const history = /** @type {History} */ (await get("history", { group: group.group, points: 60 }));
    const archive = group.kind === "search" ? /** @type {Archive | null} */ (await getIfAny("archive", { group: group.group })) : null;
    put(place,
      archive && h("p", { class: "soft" }, `best ${short(archive.best)} · ${percent(archive.filled / Math.max(archive.total, 1))} filled`),
      areas(history));
  } catch {
    put(place); // a run without a journal has no past to draw
  }
}

/** @param {History} history */
function areas(history) {
  const points = history.at.length;
  if (points < 2) return null;
  const tops = history.at.map(() => 0);
  const most = Math.max(1, ...history.at.map((_, point) => STATES.reduce((sum, state) => sum + (history.counts[state]?.[point] ?? 0), 0)));
  const paths = STATES.filter((state) => history.counts[state]?.some((count) => count > 0)).map((state) => {
    const counts = history.counts[state] ?? [];
    const lower = tops.map((top, point) => `${(point / (points - 1)) * 100},${40 - (top / most) * 40}`).reverse();
    counts.forEach((count, point) => { tops[point] = (tops[point] ?? 0) + count; });
    const upper = tops.map((top, point) => `${(point / (points - 1)) * 100},${40 - (top / most) * 40}`);
    return svg("polygon", { points: [...upper, ...lower].join(" "), class: "fill", "data-state": state });
  });
  return svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": `jobs by state from ${clock(history.at[0])} to ${clock(history.at[points - 1])}` }, paths);
}

/** @param {Job} job */
function runningItem(job) {
  return h(
    "li", { class: "now", "data-key": job.key, "data-state": job.state },
    h("span", { class: "what" }, stateMark(job.state, jobLink(job)), " ", h("span", { class: "soft" }, tagWords(job))),
    h("span", { class: "how" },
      job.progress !== null && bar(job.progress, `progress of ${job.id}`),
      job.progress !== null && h("span", { class: "number" }, percent(job.progress)),
      job.eta_s !== null && h("span", { class: "soft" }, `ETA ${duration(job.eta_s)}`),
      job.progress === null && job.started && h("span", { class: "soft" }, `since ${clock(job.started)}`),
      job.progress_desc && h("span", { class: "soft message" }, job.progress_desc)));
}

/** @param {Failure} failure @param {boolean} readOnly */
function failureItem(failure, readOnly) {
  const groups = new Set(failure.jobs.map((job) => job.group));
  const [group] = groups.size === 1 ? groups : [null];
  const few = failure.jobs.length === failure.total;
  return h(
    "li", { class: "failure" },
    stateMark("error", h("b", {}, `${short(failure.total)} `)),
    h("span", { class: "message" }, failure.error), " ",
    h("span", { class: "soft" }, failure.place || failure.reason),
    h("span", { class: "buttons" },
      h("a", { class: "button", href: address("jobs", { group, filter: `state=error and reason=${failure.reason}` }) }, "see"),
      !readOnly && h("button", { type: "button", onclick: () => void ask("Retry", failure.jobs) }, few ? `retry ${failure.total}` : `retry ${failure.jobs.length} of ${failure.total}`)),
  );
}

/** @param {Alarm} alarm */
const alarmItem = (alarm) => h("li", {}, "! ", alarm.key && keyLink(alarm.key), " ", h("span", {}, alarm.text));
