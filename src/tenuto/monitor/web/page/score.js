// The score: one time line of all groups, each attempt a note, each wait dashed; and the playhead.
// Lines and bins are computed by the server; this module places them on a canvas, with a list beside it.

import { get } from "./api.js";
import { h, put, say } from "./dom.js";
import { countMarks, groupChoice, keyLink, stateMark, throttled } from "./parts.js";
import { address, clock, duration, glyph, nameOfKey, STATES } from "./words.js";

/** @import { Bar, Groups, JobDetail, Lane, Overview, Place, Score, State, Token, View, Why } from "./types.js" */

const LINE = 22;
const HEAD = 20;
const GAP = 10;
const THIN = 14;
const NAMES = 130;
const MOST_LISTED = 200;
const MOST_LINES = 40;
const STEPS = 1000;

/** @typedef {{x: number, y: number, width: number, bar: Bar}} Hit */

/** @param {Place} place @returns {Promise<View>} */
export async function score({ main, query }) {
  const chosen = query.get("group") ?? "";
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  let at = query.get("at");
  let from = Number(query.get("from")) || undefined;
  let to = Number(query.get("to")) || undefined;
  /** @type {Score} */
  let found = await get("score", { group: chosen, from, to, width: 400 });
  /** @type {Hit[]} */
  let hits = [];
  let selected = "";
  /** @type {Set<string>} */
  let lit = new Set();

  const canvas = h("canvas", { class: "score", role: "img", "aria-label": "Score; the list beside it names every note" });
  const box = h("div", { class: "canvasbox", tabindex: 0, role: "region", "aria-label": "Score" }, canvas);
  const range = h("span", { class: "soft" });
  const counts = h("p", { class: "counts", role: "status" });
  const trail = h("p", { class: "trail", role: "status" });
  const list = h("ul", { class: "plain notes", "aria-label": "Notes" });
  const slider = h("input", { type: "range", min: 0, max: STEPS, value: STEPS, "aria-label": "Playhead" });

  const redraw = () => { hits = drawn(canvas, box, found, at === null ? null : Date.parse(at), selected, lit); };
  const note = () => {
    say(range, `${clock(found.from)} – ${clock(found.to)}`);
    const place = at === null ? STEPS : Math.round(((Date.parse(at) - found.from) / Math.max(1, found.to - found.from)) * STEPS);
    slider.value = String(Math.max(0, Math.min(STEPS, place)));
    slider.setAttribute("aria-valuetext", at === null ? "live" : clock(at));
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
  /** @param {MouseEvent} event */
  const hit = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    return hits.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + LINE);
  };
  canvas.addEventListener("pointermove", (event) => { const one = hit(event); canvas.classList.toggle("pointing", one !== undefined); if (one) void select(one.bar[4]).catch(() => undefined); });
  canvas.addEventListener("click", (event) => { const one = hit(event); if (one) location.hash = address("job", { key: one.bar[4], at }); });
  /** @param {number} factor */
  const zoom = (factor) => {
    const middle = at === null ? found.to : Date.parse(at);
    const half = ((found.to - found.from) * factor) / 2;
    [from, to] = at === null ? [found.to - half * 2, undefined] : [middle - half, middle + half];
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
      h("div", {}, box, slider, counts, trail),
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

/** @param {JobDetail} job */
function story(job) {
  const waited = job.submitted && job.started ? `waited ${duration((Date.parse(job.started) - Date.parse(job.submitted)) / 1000)}, ` : "";
  return `${waited}ran ${duration(job.duration_s)}, attempt ${job.attempt}`;
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

/**
 * @param {HTMLCanvasElement} canvas @param {HTMLElement} box @param {Score} found
 * @param {number | null} playhead @param {string} selected @param {Set<string>} lit
 */
function drawn(canvas, box, found, playhead, selected, lit) {
  const style = getComputedStyle(canvas);
  /** @param {string} name */
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const names = box.clientWidth < 600 ? 70 : NAMES;
  const width = Math.max(box.clientWidth, 280);
  const tall = found.lanes.map((lane) => Math.min(MOST_LINES, Math.max(1, lane.lines, lane.bins.length ? 3 : 1)) * LINE);
  const held = found.tokens.map((token) => tokenNotes(token, found));
  const height = HEAD + tall.reduce((sum, one) => sum + one + GAP, 0) + held.reduce((sum, one) => sum + Math.max(one.length, 1) * THIN + GAP, 0) + GAP;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  /** @param {number} instant */
  const x = (instant) => names + ((instant - found.from) / Math.max(1, found.to - found.from)) * (width - names - 8);
  axis(pen, found, x, width, height, colour);
  /** @type {Hit[]} */
  const hits = [];
  let top = HEAD;
  found.lanes.forEach((lane, number) => {
    const size = tall[number] ?? LINE;
    pen.fillStyle = colour("ink");
    pen.fillText(clipped(pen, lane.label, names - 12), 4, top + LINE / 2);
    hits.push(...(lane.bins.length ? bins(pen, lane, x, top, size, colour) : notes(pen, lane, x, top, selected, lit, colour)));
    top += size + GAP;
  });
  found.tokens.forEach((token, number) => {
    const notes = held[number] ?? [];
    pen.fillStyle = colour("ink");
    pen.fillText(clipped(pen, `${token.name} ${token.held}/${token.capacity ?? "?"}`, names - 12), 4, top + THIN / 2);
    notes.forEach((bar, line) => {
      const [left, y] = [x(bar[1]), top + line * THIN + 2];
      const wide = Math.max(2, x(bar[2]) - left - 1);
      pen.globalAlpha = selected && !lit.has(bar[4]) ? 0.25 : 1;
      pen.fillStyle = colour(bar[3]);
      pen.fillRect(left, y, wide, THIN - 4);
      pen.globalAlpha = 1;
      hits.push({ x: left, y, width: Math.max(wide, 6), bar });
    });
    top += Math.max(notes.length, 1) * THIN + GAP;
  });
  if (playhead !== null) {
    pen.fillStyle = colour("accent");
    pen.fillRect(Math.max(names, Math.min(x(playhead), width - 4)) - 1, 0, 2, height);
  }
  return hits;
}

/**
 * The lane of a token: the notes of the jobs that hold its units now, one line each.
 * @param {Token} token @param {Score} found @returns {Bar[]}
 */
function tokenNotes(token, found) {
  const holders = new Set(token.holders.map((one) => one.key));
  return found.lanes.flatMap((lane) => lane.bars.filter((bar) => bar[3] === "running" && holders.has(bar[4]))).slice(0, MOST_LINES);
}

/** @param {CanvasRenderingContext2D} pen @param {Score} found @param {(instant: number) => number} x @param {number} width @param {number} height @param {(name: string) => string} colour */
function axis(pen, found, x, width, height, colour) {
  const count = Math.max(2, Math.floor(width / 160));
  for (let step = 0; step <= count; step++) {
    const instant = found.from + ((found.to - found.from) * step) / count;
    pen.fillStyle = colour("line");
    pen.fillRect(x(instant), HEAD - 4, 1, height);
    pen.fillStyle = colour("soft-ink");
    pen.textAlign = step === count ? "right" : "left";
    pen.fillText(new Date(instant).toLocaleTimeString("en-GB"), x(instant) + (step === count ? 0 : 3), 9);
  }
  pen.textAlign = "left";
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} room */
function clipped(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** @param {CanvasRenderingContext2D} pen @param {Lane} lane @param {(instant: number) => number} x @param {number} top @param {string} selected @param {Set<string>} lit @param {(name: string) => string} colour */
function notes(pen, lane, x, top, selected, lit, colour) {
  pen.setLineDash([3, 3]);
  pen.strokeStyle = colour("soft-ink");
  for (const [line, start, end, , key] of lane.waits) {
    if (line >= MOST_LINES || (selected && !lit.has(key))) continue;
    const y = top + Math.min(line, Math.max(lane.lines - 1, 0)) * LINE + LINE / 2;
    pen.beginPath();
    pen.moveTo(x(start), y);
    pen.lineTo(x(end), y);
    pen.stroke();
  }
  pen.setLineDash([]);
  return lane.bars.filter((bar) => bar[0] < MOST_LINES).map((bar) => {
    const [line, start, end, state, key, attempt] = bar;
    const [left, y] = [x(start), top + line * LINE + 2];
    const width = Math.max(2, x(end) - left - 1);
    pen.globalAlpha = selected && !lit.has(key) ? 0.25 : 1;
    pen.fillStyle = colour(state);
    pen.beginPath();
    pen.roundRect(left, y, width, LINE - 4, Math.min(4, width / 2));
    pen.fill();
    if (key === selected) {
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.stroke();
      pen.lineWidth = 1;
    }
    if (width > 64) {
      pen.fillStyle = colour("on-state");
      pen.fillText(clipped(pen, `${glyph(state)} ${nameOfKey(key)}${attempt > 1 ? ` (${attempt})` : ""}`, width - 8), left + 4, y + (LINE - 4) / 2);
    }
    pen.globalAlpha = 1;
    return { x: left, y, width: Math.max(width, 6), bar };
  });
}

/** @param {CanvasRenderingContext2D} pen @param {Lane} lane @param {(instant: number) => number} x @param {number} top @param {number} size @param {(name: string) => string} colour @returns {Hit[]} */
function bins(pen, lane, x, top, size, colour) {
  /** @param {Partial<Record<State, number>>} counts */
  const sum = (counts) => STATES.reduce((total, state) => total + (counts[state] ?? 0), 0);
  const most = Math.max(1, ...lane.bins.map(([, , counts]) => sum(counts)));
  for (const [start, end, counts] of lane.bins) {
    let y = top + size;
    for (const state of STATES) {
      const tall = ((counts[state] ?? 0) / most) * size;
      pen.fillStyle = colour(state);
      pen.fillRect(x(start), y - tall, Math.max(1, x(end) - x(start)), tall);
      y -= tall;
    }
  }
  return [];
}
