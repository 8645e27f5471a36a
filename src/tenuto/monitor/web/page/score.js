// The score: one time line of all groups, each attempt a note, each wait dashed; and the playhead.
// Lines and bins are computed by the server; this module places them on a canvas, with a list beside it.

import { get } from "./api.js";
import { h, put, say } from "./dom.js";
import { countMarks, groupChoice, jobLink, keyLink, stateMark, throttled } from "./parts.js";
import { drawn, noteAt } from "./staff.js";
import { address, attemptWords, clock, duration, nameOfKey, short, STATES } from "./words.js";

/** @import { Groups, JobDetail, Jobs, Overview, Place, Score, State, TokenLane, View, Why } from "./types.js" */
/** @import { Drawing, Span } from "./staff.js" */

const MOST_LISTED = 200;
const MOST_BRUSHED = 20;
const STEPS = 1000;
const LEAST_BRUSH = 5;

/** @param {Place} place @returns {Promise<View>} */
export async function score({ main, query }) {
  const chosen = query.get("group") ?? "";
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  let at = query.get("at");
  let from = Math.round(Number(query.get("from"))) || undefined;
  let to = Math.round(Number(query.get("to"))) || undefined;
  /** @type {Score} */
  let found = await get("score", { group: chosen, from, to, width: 400 });
  /** @type {Drawing} */
  let drawing = { hits: [], instant: () => found.from };
  /** @type {Span | null} */
  let brush = null;
  let selected = "";
  /** @type {Set<string>} */
  let lit = new Set();

  const canvas = h("canvas", { class: "score", role: "img", "aria-label": "Score; the list beside it names every note" });
  const box = h("div", { class: "canvasbox", tabindex: 0, role: "region", "aria-label": "Score" }, canvas);
  const range = h("span", { class: "soft span" });
  const counts = h("p", { class: "counts", role: "status" });
  const trail = h("p", { class: "trail", role: "status" });
  const held = h("p", { class: "held" });
  const brushed = h("section", { class: "brushed", "aria-label": "Brushed" });
  const list = h("ul", { class: "plain notes", "aria-label": "Notes" });
  const slider = h("input", { type: "range", min: 0, max: STEPS, value: STEPS, "aria-label": "Playhead" });

  const redraw = () => { drawing = drawn(canvas, box, found, at === null ? null : Date.parse(at), selected, lit, brush); };
  const note = () => {
    say(range, `${clock(found.from)} – ${clock(found.to)}`);
    const place = at === null ? STEPS : Math.round(((Date.parse(at) - found.from) / Math.max(1, found.to - found.from)) * STEPS);
    slider.value = String(Math.max(0, Math.min(STEPS, place)));
    slider.setAttribute("aria-valuetext", at === null ? "live" : clock(at));
    const instant = at === null ? found.to - 1 : Date.parse(at);
    put(held, found.tokens.map((token) => h("span", { "data-token": token.name },
      `token ${token.name}: ${unitsAt(token, instant)} of ${token.capacity ?? "?"} held`)));
  };
  const load = async () => {
    found = await get("score", { group: chosen, from, to, width: 400 });
    redraw();
    note();
    drawList(list, found, select, at);
  };
  const count = async () => {
    const instant = at;
    const overview = /** @type {Overview} */ (await get("overview", { at: instant }));
    if (instant !== at) return;
    const shown = overview.groups.filter((group) => !chosen || group.group === chosen);
    /** @type {Partial<Record<State, number>>} */
    const sum = {};
    for (const state of STATES) sum[state] = shown.reduce((total, group) => total + group.counts[state], 0);
    put(counts, h("b", {}, at === null ? "now" : `at ${clock(at)}`), " ",
      countMarks(sum, (state) => address("jobs", { group: chosen, filter: `state=${state}`, at })));
  };
  const counting = throttled(() => count().catch(() => undefined), 150);
  /** @param {string | null} instant */
  const move = (instant) => {
    at = instant;
    history.replaceState(null, "", address("score", { group: chosen, at }));
    for (const one of document.querySelectorAll("nav a")) {
      const [path = "", search = ""] = (one.getAttribute("href") ?? "").replace(/^#\//, "").split("?", 2);
      one.setAttribute("href", address(path, { group: new URLSearchParams(search).get("group"), at }));
    }
    redraw();
    note();
    counting();
  };
  /** @param {string} key */
  async function select(key) {
    if (selected === key) return;
    selected = key;
    lit = new Set([key]);
    redraw();
    put(trail, key && [keyLink(key), " …"]);
    if (!key) return;
    const job = /** @type {JobDetail} */ (await get("job", { key }));
    const why = /** @type {Why} */ (await get("why", { key }));
    if (selected !== key) return;
    lit = new Set([key, ...job.dependencies.map((one) => one.key), ...job.dependents.map((one) => one.key)]);
    redraw();
    put(trail, stateMark(job.state, keyLink(key)), ` ${story(job)} `, h("span", { class: "soft" }, why.because.join(" ← ")));
  }

  slider.addEventListener("input", () => {
    const place = Number(slider.value) / STEPS;
    move(place >= 1 ? null : new Date(found.from + (found.to - found.from) * place).toISOString());
  });
  /** @param {MouseEvent} event @returns {[x: number, y: number]} */
  const place = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const see = async () => {
    if (brush === null) return put(brushed);
    const filter = heldBetween(...brush);
    const jobs = /** @type {Jobs} */ (await get("jobs", { group: chosen, filter, limit: MOST_BRUSHED }));
    put(brushed, h("h2", {}, `${short(jobs.matched)} jobs held between ${clock(brush[0])} and ${clock(brush[1])}`),
      h("div", { class: "bar" },
        h("input", { type: "text", readonly: true, class: "wide", value: filter, "aria-label": "Filter of what is brushed" }),
        h("a", { class: "button", href: address("jobs", { group: chosen, filter }) }, "see jobs"),
        h("button", { type: "button", onclick: () => { brush = null; redraw(); void see(); } }, "clear")),
      h("ul", { class: "plain" }, jobs.jobs.map((job) => h("li", {}, stateMark(job.state, jobLink(job))))));
  };
  let begun = -1;
  canvas.addEventListener("pointerdown", (event) => { begun = place(event)[0]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (begun >= 0 && Math.abs(x - begun) > LEAST_BRUSH) {
      brush = [drawing.instant(Math.min(begun, x)), drawing.instant(Math.max(begun, x))];
      return redraw();
    }
    const one = noteAt(drawing.hits, x, y);
    canvas.classList.toggle("pointing", one !== undefined);
    if (one) void select(one.bar[4]).catch(() => undefined);
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    const from = begun;
    begun = -1;
    if (from < 0) return;
    if (Math.abs(x - from) > LEAST_BRUSH) return void see().catch(() => undefined);
    const one = noteAt(drawing.hits, x, y);
    if (one) location.hash = address("job", { key: one.bar[4], at });
  });
  canvas.addEventListener("pointercancel", () => { begun = -1; });
  /** @param {number} factor */
  const zoom = (factor) => {
    const span = Math.max(2, Math.round((found.to - found.from) * factor));
    const end = at === null ? found.to : Math.round(Date.parse(at) + span / 2);
    from = Math.max(0, end - span);
    if (at !== null) to = end;
    void load();
  };
  put(
    main, h("h1", {}, "Score"),
    h("div", { class: "bar" },
      groupChoice(groups, chosen, (group) => { location.hash = address("score", { group, at }); }, "all groups"),
      range,
      h("button", { type: "button", onclick: () => zoom(0.5) }, "zoom in"),
      h("button", { type: "button", onclick: () => zoom(2) }, "zoom out"),
      h("button", { type: "button", onclick: () => { from = to = undefined; void load(); } }, "fit"),
      h("button", { type: "button", onclick: () => move(null) }, "live")),
    h("div", { class: "columns score" },
      h("div", {}, box, slider, counts, held, trail, brushed),
      h("section", { "aria-label": "Notes" }, h("h2", {}, "Notes"), list)),
  );
  redraw();
  note();
  drawList(list, found, select, at);
  counting();
  const resized = new ResizeObserver(redraw);
  resized.observe(box);
  const again = throttled(() => (at === null ? Promise.all([load(), count()]) : load()).catch(() => undefined), 1000);
  return { delta: again, reset: again, tick: () => { if (at === null && from === undefined && found.lanes.some((lane) => lane.bars.some((bar) => bar[3] === "running"))) again(); }, close: () => resized.disconnect() };
}

/**
 * The units of a token that were held at an instant.
 * @param {TokenLane} token @param {number} instant
 */
const unitsAt = (token, instant) => token.steps.find(([from, to]) => from <= instant && instant < to)?.[2] ?? 0;

/**
 * The filter of the jobs whose attempt was held at some instant of a span, as `tenuto jobs` takes it.
 * @param {number} from @param {number} to
 */
function heldBetween(from, to) {
  const [first, last] = [from, to].map((instant) => new Date(instant).toISOString().replace("Z", ""));
  return `started<="${last}" and (ended>="${first}" or ended=none)`;
}

/** @param {JobDetail} job */
function story(job) {
  const waited = job.submitted && job.started ? `waited ${duration((Date.parse(job.started) - Date.parse(job.submitted)) / 1000)}, ` : "";
  return `${waited}ran ${duration(job.duration_s)}, ${attemptWords(job.attempt, job.most_attempts)}`;
}

/** @param {HTMLElement} list @param {Score} found @param {(key: string) => Promise<void>} select @param {string | null} at */
function drawList(list, found, select, at) {
  const bars = found.lanes.flatMap((lane) => lane.bars).sort((one, other) => other[1] - one[1]).slice(0, MOST_LISTED);
  const focused = document.activeElement?.getAttribute("data-note");
  put(list, bars.map(([, start, end, state, key, attempt]) => {
    const link = h("a", { href: address("job", { key, at }), "data-key": key, "data-note": `${key} ${attempt}`, onfocus: () => void select(key).catch(() => undefined) }, nameOfKey(key));
    return h("li", { "data-key": key }, stateMark(state, link), h("span", { class: "soft" }, ` ${attempt > 1 ? `attempt ${attempt}, ` : ""}${clock(start)}, ${duration((end - start) / 1000)}`));
  }));
  if (!bars.length) put(list, h("li", { class: "soft" }, found.lanes.some((lane) => lane.bins.length) ? "Too many notes to name: zoom in." : "No note in sight."));
  if (focused) for (const one of list.querySelectorAll("a")) if (one.dataset.note === focused) one.focus({ preventScroll: true });
}
