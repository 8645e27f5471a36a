// The first view: groups as cards, what runs now, failures by cause, what asks for attention.
// It is drawn from one answer of the server, and asked for again when something changed.

import { get, getIfAny, post } from "./api.js";
import { askFor, inform, tell } from "./ask.js";
import { h, keyed, put, svg } from "./dom.js";
import { bar, countMarks, empty, groupTitle, jobLink, keyLink, stateBar, stateMark, tagWords, throttled, when } from "./parts.js";
import { address, clock, duration, energy, groupName, kindWord, percent, short, STATES } from "./text.js";

/** @import { Alarm, Archive, Child, Failure, Group, History, Job, Jobs, Overview, Place, View } from "./types.js" */
/** @typedef {Record<string, {note: string, pinned: boolean}>} Notes */

const MOST_EARLIER = 60;

/** @param {Place} place @returns {Promise<View>} */
export async function overview({ main, about }) {
  const where = h("p", { class: "soft" }, about.workspace);
  const cards = h("div", { class: "cards" });
  const earlier = h("div", { class: "cards" });
  const folded_ = h("details", { class: "earlier" }, h("summary", {}, ""), earlier);
  const running = h("ul", { class: "plain running" });
  const waiting = h("ul", { class: "plain running" });
  const more = h("p", { class: "soft" });
  const failures = h("ul", { class: "plain" });
  const attention = h("ul", { class: "plain" });
  const alarms = h("section", { "aria-label": "Attention" }, h("h2", {}, "Attention"), attention);
  /** @type {Notes} */
  let notes = /** @type {{notes: Notes}} */ (await get("notes")).notes;
  /** @param {Group} group @param {string} note @param {boolean} pinned */
  const write = async (group, note, pinned) => {
    try {
      notes = /** @type {{notes: Notes}} */ (await post("notes", { group: group.group, note, pinned })).notes;
      await load();
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
    }
  };
  /** @param {Group} group */
  const card = (group) => cardOf(group, () => notes[group.group] ?? { note: "", pinned: false }, about.read_only ? null : write);
  const load = async () => {
    const found = /** @type {Overview} */ (await get("overview"));
    const working = found.groups.filter((group) => group.live).length;
    put(where, about.workspace, ` · ${working ? `${working} at work` : "nothing is at work"} · `, `${short(Number(found.jobs_per_s.toPrecision(2)))} jobs/s`);
    const ranked = found.groups.map((group, place) => ({ group, rank: attentionOf(group, notes), place })).sort((one, other) => one.rank - other.rank || one.place - other.place);
    const first = ranked.filter((one) => one.rank < 4).map((one) => one.group);
    const rest = ranked.filter((one) => one.rank >= 4).map((one) => one.group);
    const isFew = first.length + rest.length <= 6;
    keyed(cards, isFew ? [...first, ...rest] : first, (group) => group.group, card);
    keyed(earlier, isFew ? [] : rest.slice(0, MOST_EARLIER), (group) => group.group, card);
    folded_.hidden = isFew || !rest.length;
    put(/** @type {Element} */ (folded_.querySelector("summary")), h("h2", {}, `${short(rest.length)} earlier`));
    if (!found.groups.length) put(cards, empty("No run, service or search is known here yet. Try the demo, or run your own script:", "tenuto demo"));
    keyed(running, found.running, (job) => `${job.group} ${job.key} ${changing(job)}`, runningItem);
    running.hidden = !found.running.length;
    put(more, found.running.length ? h("a", { class: "button", href: address("jobs", { filter: "state=running" }) }, "all that run") : "Nothing runs.");
    put(failures, found.failures.map((failure) => failureItem(failure, about.read_only)));
    if (!found.failures.length) put(failures, h("li", { class: "soft" }, "No failures."));
    put(attention, found.alarms.map(alarmItem));
    alarms.hidden = !found.alarms.length;
    const queued = /** @type {Jobs} */ (await get("jobs", { filter: "state=waiting or state=ready or state=scheduled", limit: 8 }));
    put(waiting, queued.jobs.map(waitingItem), queued.matched > queued.jobs.length && h("li", {}, h("a", { class: "button", href: address("jobs", { filter: "state=waiting or state=ready or state=scheduled" }) }, `all ${short(queued.matched)} that wait`)));
    if (!queued.matched) put(waiting, h("li", { class: "soft" }, "Nothing waits."));
  };
  await load();
  put(
    main, h("h1", {}, "Overview"), where, alarms, cards, folded_,
    h("div", { class: "columns three" },
      folded("Now running", running, more),
      folded("Failures by cause", failures),
      folded("Waiting", waiting)),
  );
  const again = throttled(() => load().catch(() => undefined), 500);
  return { delta: again, reset: again };
}

/**
 * What a person should see first: pinned, at work, with failures, the rest.
 * @param {Group} group @param {Notes} notes
 */
function attentionOf(group, notes) {
  if (notes[group.group]?.pinned) return 0;
  if (group.live) return group.counts.error ? 1 : 2;
  const isBad = group.take_up || (group.kind === "experiment" && group.counts.error > 0) || /fail|error|lost|interrupt/i.test(group.state);
  const age = Date.now() - Date.parse(group.ended ?? group.started ?? "");
  return isBad && age < 7 * 86400e3 ? 3 : 4;
}

/**
 * A section that is folded on a narrow screen, where the cards come first.
 * @param {string} title @param {...Child} content
 */
const folded = (title, ...content) => h("section", { "aria-label": title },
  h("details", { open: !matchMedia("(max-width: 760px)").matches }, h("summary", {}, h("h2", {}, title)), content));

/** @param {Job} job */
const changing = (job) => `${job.attempt} ${job.state} ${percent(job.progress)} ${job.progress_desc} ${Math.round(job.eta_s ?? -1)}`;

/** @param {Group} group @param {() => {note: string, pinned: boolean}} noted @param {((group: Group, note: string, pinned: boolean) => Promise<void>) | null} write */
function cardOf(group, noted, write) {
  const facts = h("p", { class: "counts" });
  const stack = h("div", {});
  const about = h("p", { class: "soft small" });
  const note = h("p", { class: "note" });
  const sparkline = h("div", { class: "sparkline" });
  const title = h("a", { href: address("jobs", { group: group.group }) }, groupTitle(group));
  const pin = write && h("button", { type: "button", class: "quiet pin", "aria-pressed": "false", title: "Pin", "aria-label": `Pin ${groupName(group)}`, onclick: () => void write(group, noted().note, !noted().pinned) }, "⚲");
  const edit = write && h("button", { type: "button", class: "quiet pin", title: "Note", "aria-label": `Note on ${groupName(group)}`, onclick: () => writeNote(group, noted(), write) }, "✎");
  const element = h(
    "article", { class: "card", "data-group": group.group },
    h("div", { class: "bar title" }, h("h2", {}, title), h("span", { class: "grow" }), edit, pin), about, note, stack, facts, sparkline);
  let drawn = "";
  let sparked = -Infinity;
  let notRun = 0;
  /** @param {Group} now */
  const update = (now) => {
    const { note: words, pinned } = noted();
    const news = JSON.stringify([now.counts, now.state, now.live, now.take_up, Math.round(now.eta_s ?? -1), now.known, now.message, now.services, words, pinned, notRun]);
    if (news === drawn) return;
    drawn = news;
    pin?.setAttribute("aria-pressed", String(pinned));
    put(note, words);
    note.hidden = !words;
    put(title, groupTitle({ ...now, run: null }));
    put(about, `${kindWord(now.kind)} `, now.run ?? "", ` · ${now.take_up ? "stopped" : now.state.toLowerCase()}`, now.ended ? [" ", when(now.ended)] : now.started ? [", began ", when(now.started)] : "", now.host && ` · ${now.host}`);
    put(stack, stateBar(now.counts));
    const isOpen = now.kind !== "experiment" && now.live;
    put(
      facts,
      h("b", {}, isOpen ? `${short(now.counts.done)} done, open` : now.live ? `${short(now.counts.done)} of ${short(now.total)}` : `${now.take_up ? "stopped" : "ended"}: ${short(now.counts.done)} of ${short(now.total)}`),
      now.known < now.total && now.live ? ` (${short(now.known)} seen) ` : " ",
      countMarks({ ...now.counts, done: 0, error: 0 }, (one) => address("jobs", { group: now.group, filter: `state=${one}` })),
      now.counts.error > notRun && h("a", { class: "chip", href: address("jobs", { group: now.group, filter: notRun ? "state=error and reason!=dependency" : "state=error" }) }, stateMark("error", `${short(now.counts.error - notRun)} failed`)),
      notRun > 0 && h("a", { class: "chip", href: address("jobs", { group: now.group, filter: "state=error and reason=dependency" }) }, stateMark("unscheduled", `${short(notRun)} not run`)),
      now.eta_s !== null && !isOpen && h("span", {}, `ETA ${duration(now.eta_s)}`),
      now.carbon?.energy_kwh !== undefined && h("span", {}, energy(now.carbon.energy_kwh)),
      now.message && h("span", { class: "message" }, now.message),
    );
    if (performance.now() - sparked > 2000) {
      sparked = performance.now();
      void drawSparkline(sparkline, now);
      if (now.counts.error && now.kind === "experiment") void get("jobs", { group: now.group, filter: "state=error and reason=dependency", limit: 1 }).then((answer) => {
        notRun = /** @type {Jobs} */ (answer).matched;
        update(now);
      }, () => undefined);
    }
  };
  update(group);
  return Object.assign(element, { update });
}

/** @param {Group} group @param {{note: string, pinned: boolean}} before @param {(group: Group, note: string, pinned: boolean) => Promise<void>} write */
function writeNote(group, before, write) {
  const box = h("textarea", { rows: 4, maxlength: 2000, "aria-label": "Note" }, before.note);
  const save = h("button", { type: "button", class: "primary", onclick: () => {
    /** @type {HTMLDialogElement} */ (document.getElementById("dialog")).close("");
    void write(group, box.value.trim(), before.pinned);
  } }, "Save");
  inform(`Note on ${groupName(group)}`, h("div", { class: "login" }, box, save));
  box.focus();
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
  const [from, to] = [history.at[0], history.at[points - 1]];
  const words = h("p", { class: "soft small spanned" }, h("span", {}, clock(from)), h("span", {}, `${short(most)} ${most === 1 ? "job" : "jobs"}, ${duration((Date.parse(to ?? "") - Date.parse(from ?? "")) / 1000)}`), h("span", {}, clock(to)));
  const picture = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": `jobs by state from ${clock(from)} to ${clock(to)}` }, paths);
  const middle = words.children[1];
  picture.addEventListener("pointermove", (event) => {
    const { left, width } = picture.getBoundingClientRect();
    const point = Math.max(0, Math.min(points - 1, Math.round(((event.clientX - left) / width) * (points - 1))));
    const counts = STATES.filter((state) => history.counts[state]?.[point]).map((state) => `${short(history.counts[state]?.[point])} ${state}`);
    if (middle) put(middle, `${clock(history.at[point])}: ${counts.join(", ")}`);
  });
  return [picture, words];
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
      job.progress === null && job.started && h("span", { class: "soft" }, "for ", duration((Date.now() - Date.parse(job.started)) / 1000)),
      job.progress_desc && h("span", { class: "soft message" }, job.progress_desc)));
}

/** @param {Job} job */
const waitingItem = (job) => h("li", { class: "now", "data-state": job.state }, h("span", { class: "what" }, stateMark(job.state, jobLink(job)), " ", h("span", { class: "soft" }, tagWords(job))),
  h("span", { class: "how soft" }, h("span", { class: "message", title: job.message }, job.message ?? job.state)));

/** @param {Failure} failure @param {boolean} readOnly */
function failureItem(failure, readOnly) {
  const groups = new Set(failure.jobs.map((job) => job.group));
  const [group] = groups.size === 1 ? groups : [null];
  const all = failure.targets.map(([key, attempt]) => ({ key, attempt }));
  return h(
    "li", { class: "failure" },
    stateMark("error", h("b", {}, `${short(failure.total)} `)),
    h("span", { class: "message" }, failure.error), " ",
    h("span", { class: "soft" }, failure.place || failure.reason),
    h("span", { class: "buttons" },
      h("a", { class: "button", href: address("jobs", { group, filter: `state=error and reason=${failure.reason}` }) }, "see"),
      !readOnly && h("button", { type: "button", onclick: () => void askFor("Retry", all) }, all.length === failure.total ? `retry ${failure.total}` : `retry ${all.length} of ${failure.total}`)),
  );
}

/** @param {Alarm} alarm */
const alarmItem = (alarm) => h("li", {}, "! ", alarm.key && keyLink(alarm.key), " ", h("span", {}, alarm.text));
