// The timeline of all groups: each attempt a bar, each wait dashed, tokens over time; and a brush.
// Lines, steps and bins are computed by the server; this module places them on a canvas, with a list beside it.

import { get } from "./api.js";
import { h, put, say } from "./dom.js";
import { choice, countMarks, groupChoice, jobLink, keyLink, stateMark, throttled } from "./parts.js";
import { timeTicks } from "./plot.js";
import { address, attemptWords, clock, duration, glyph, nameOfKey, short, STATES, wholeTime, zone } from "./text.js";

/** @import { Bar, Groups, JobDetail, Jobs, Lane, Overview, Place, State, Timeline, TokenLane, View, Wait, Why } from "./types.js" */
/** @typedef {{x: number, y: number, width: number, bar: Bar}} Hit */
/** @typedef {[from: number, to: number]} Span */
/** @typedef {{x: number, y: number, width: number, wait: Wait}} WaitHit */
/** @typedef {{hits: Hit[], waits: WaitHit[], instant: (place: number) => number}} Drawing */

const [MOST_LISTED, MOST_BRUSHED, LEAST_BRUSH] = [200, 20, 5];
const DOUBLE_MS = 250; // a click that is not the first of two
const [LINE, HEAD, GAP, NAMES, MOST_LINES] = [22, 20, 10, 130, 40];

/** @param {Place} place @returns {Promise<View>} */
export async function timeline({ main, query }) {
  const chosen = query.get("group") ?? "";
  const by = query.get("by") === "task" ? "task" : "slot";
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  let from = Math.round(Number(query.get("from"))) || undefined;
  let to = Math.round(Number(query.get("to"))) || undefined;
  /** @type {Timeline} */
  let found = await get("timeline", { group: chosen, from, to, width: 400, by });
  /** @type {Drawing} */
  let drawing = { hits: [], waits: [], instant: () => found.from };
  /** What is visible, in milliseconds; the answer may be of a little more or less while another is asked for.
   * @type {Span} */
  let visible = [found.from, found.to];
  /** @type {Span | null} */
  let brush = null;
  let selected = "";
  /** @type {Set<string>} */
  let lit = new Set();

  const tip = h("div", { class: "hovered", hidden: true });
  const canvas = h("canvas", { class: "timeline", role: "img", "aria-label": "Timeline; the list beside it names every attempt" });
  const box = h("div", { class: "canvasbox", tabindex: 0, role: "region", "aria-label": "Timeline" }, canvas, tip);
  const range = h("span", { class: "soft span" });
  const counts = h("p", { class: "counts", role: "status" });
  const trail = h("p", { class: "trail", role: "status" });
  const held = h("p", { class: "held" });
  const brushed = h("section", { class: "brushed", "aria-label": "Brushed" });
  const list = h("ul", { class: "plain bars", "aria-label": "Attempts" });

  const redraw = () => { drawing = drawn(canvas, box, { ...found, from: visible[0], to: visible[1] }, selected, lit, brush); };
  const describe = () => {
    say(range, `${clock(visible[0])} – ${clock(visible[1])}, ${duration((visible[1] - visible[0]) / 1000)}`);
    range.title = `${wholeTime(visible[0])} – ${wholeTime(visible[1])}`;
    put(held, found.tokens.map((token) => h("span", { "data-token": token.name }, `token ${token.name}: ${token.held} of ${token.capacity ?? "?"} held`)));
    drawList(list, found, select);
  };
  let asked = 0;
  const more = h("div", {});
  const load = async () => {
    const mine = ++asked;
    const answer = /** @type {Timeline} */ (await get("timeline", { group: chosen, from, to, width: 400, by }));
    if (mine !== asked) return;
    found = answer;
    visible = [found.from, found.to];
    redraw();
    describe();
  };
  const count = async () => {
    const overview = /** @type {Overview} */ (await get("overview"));
    const shown = overview.groups.filter((group) => !chosen || group.group === chosen);
    /** @type {Partial<Record<State, number>>} */
    const sum = {};
    for (const state of STATES) sum[state] = shown.reduce((total, group) => total + group.counts[state], 0);
    put(counts, h("b", {}, "now"), " ", countMarks(sum, (state) => address("jobs", { group: chosen, filter: `state=${state}` })));
  };
  const counting = throttled(() => count().catch(() => undefined), 150);
  /** @param {string} key */
  async function select(key) {
    if (selected === key) return;
    selected = key;
    put(more);
    lit = new Set([key]);
    redraw();
    put(trail, key && [keyLink(key), " …"]);
    if (!key) return;
    const job = /** @type {JobDetail} */ (await get("job", { key }));
    const why = /** @type {Why} */ (await get("why", { key }));
    if (selected !== key) return;
    lit = new Set([key, ...job.dependencies.map((one) => one.key), ...job.dependents.map((one) => one.key)]);
    redraw();
    const told = () => [` ${Object.entries(job.tags).map(([name, value]) => `${name}=${value}`).join(" ")} `, h("span", {}, story(job)), " ", h("span", { class: "soft" }, why.because.join(" ← "))];
    put(trail, stateMark(job.state, keyLink(key)), told());
    put(more, told());
  }

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
  const soon = throttled(() => load().catch(() => undefined), 150);
  /** @param {number} low @param {number} high shows this span at once, and asks for what is in it */
  const look = (low, high) => {
    const least = Math.max(10, high - low);
    [from, to] = [Math.max(0, Math.round(low)), Math.max(1, Math.round(low + least))];
    visible = [from, to];
    redraw();
    soon();
  };
  canvas.addEventListener("wheel", (event) => {
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    const [at, factor] = [drawing.instant(place(event)[0]), 1.2 ** Math.sign(event.deltaY)];
    look(at - (at - visible[0]) * factor, at + (visible[1] - at) * factor);
  }, { passive: false });
  /** @type {{x: number, isBrush: boolean, visible: Span} | null} */
  let drag = null;
  let opening = 0;
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    drag = { x, isBrush: y < HEAD || event.shiftKey, visible: [...visible] };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (drag && Math.abs(x - drag.x) > LEAST_BRUSH) {
      tip.hidden = true;
      if (drag.isBrush) {
        brush = [drawing.instant(Math.min(drag.x, x)), drawing.instant(Math.max(drag.x, x))];
        return redraw();
      }
      const shift = (drawing.instant(drag.x) - drawing.instant(x)) - (visible[0] - drag.visible[0]);
      if (shift) look(drag.visible[0] + shift, drag.visible[1] + shift);
      return;
    }
    const one = barAt(drawing.hits, x, y);
    const wait = one ? undefined : drawing.waits.find((some) => x >= some.x && x <= some.x + some.width && Math.abs(y - some.y) < LINE / 2);
    canvas.classList.toggle("pointing", one !== undefined);
    tip.hidden = !one && !wait;
    if (one) put(tip, stateMark(one.bar[3], nameOfKey(one.bar[4])), h("div", {}, `${clock(one.bar[1])}, ${duration((one.bar[2] - one.bar[1]) / 1000)}${one.bar[5] > 1 ? `, attempt ${one.bar[5]}` : ""}`), more);
    else if (wait) put(tip, h("b", {}, nameOfKey(wait.wait[4])), h("div", {}, `waited ${duration((wait.wait[2] - wait.wait[1]) / 1000)} ${wait.wait[3]}`));
    tip.style.left = `${Math.min(x + 14, box.clientWidth - 240)}px`;
    tip.style.top = `${y + 16}px`;
    if (one) void select(one.bar[4]).catch(() => undefined);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    const done = drag;
    drag = null;
    if (!done) return;
    if (Math.abs(x - done.x) > LEAST_BRUSH) return done.isBrush ? void see().catch(() => undefined) : undefined;
    const one = barAt(drawing.hits, x, y);
    clearTimeout(opening);
    if (one) opening = setTimeout(() => { location.hash = address("job", { key: one.bar[4] }); }, DOUBLE_MS);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  const fit = () => { clearTimeout(opening); from = to = undefined; brush = null; void Promise.all([load(), see()]).catch(() => undefined); };
  canvas.addEventListener("dblclick", fit);
  /** @param {number} factor */
  const zoom = (factor) => {
    if (factor < 1 && brush !== null) look(...brush);
    else {
      const middle = (visible[0] + visible[1]) / 2;
      const half = Math.max(5, ((visible[1] - visible[0]) / 2) * factor);
      look(middle - half, middle + half);
    }
    brush = null;
    void see();
  };
  put(
    main,
    h("div", { class: "bar" }, h("h1", {}, "Timeline"),
      groupChoice(groups, chosen, (group) => { location.hash = address("timeline", { group, by }); }, "everything"),
      choice("Rows", [["slot", "by slot"], ["task", "by task"]], by, (value) => { location.hash = address("timeline", { group: chosen, by: value }); }),
      range,
      h("button", { type: "button", onclick: () => zoom(0.5) }, "zoom in"),
      h("button", { type: "button", onclick: () => zoom(2) }, "zoom out"),
      h("button", { type: "button", onclick: fit }, "fit"),
      h("span", { class: "soft wide-only" }, "wheel zooms, drag moves, drag on the times selects, double click fits")),
    h("div", { class: "columns timeline" },
      h("div", {}, box, counts, held, trail, brushed),
      h("section", { "aria-label": "Attempts" }, h("h2", {}, "Attempts"), list)),
  );
  redraw();
  describe();
  counting();
  const resized = new ResizeObserver(redraw);
  resized.observe(box);
  const again = throttled(() => Promise.all([load(), count()]).catch(() => undefined), 1000);
  return { delta: again, reset: again, tick: () => { if (from === undefined && found.lanes.some((lane) => lane.bars.some((bar) => bar[3] === "running"))) again(); }, close: () => { clearTimeout(opening); resized.disconnect(); } };
}

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

/** @param {HTMLElement} list @param {Timeline} found @param {(key: string) => Promise<void>} select */
function drawList(list, found, select) {
  const bars = found.lanes.flatMap((lane) => lane.bars).sort((one, other) => other[1] - one[1]).slice(0, MOST_LISTED);
  const focused = document.activeElement?.getAttribute("data-bar");
  put(list, bars.map(([, start, end, state, key, attempt]) => {
    const link = h("a", { href: address("job", { key }), "data-key": key, "data-bar": `${key} ${attempt}`, onfocus: () => void select(key).catch(() => undefined) }, nameOfKey(key));
    return h("li", { "data-key": key }, stateMark(state, link), h("span", { class: "soft" }, ` ${attempt > 1 ? `attempt ${attempt}, ` : ""}${clock(start)}, ${duration((end - start) / 1000)}`));
  }));
  if (!bars.length) put(list, h("li", { class: "soft" }, found.lanes.some((lane) => lane.bins.length) ? "Too many attempts to name: zoom in." : "No attempt in this span."));
  if (focused) for (const one of list.querySelectorAll("a")) if (one.dataset.bar === focused) one.focus({ preventScroll: true });
}

/**
 * The bar at a place of the canvas.
 * @param {Hit[]} hits @param {number} x @param {number} y
 */
const barAt = (hits, x, y) => hits.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + LINE);

/**
 * @param {HTMLCanvasElement} canvas @param {HTMLElement} box @param {Timeline} found
 * @param {string} selected @param {Set<string>} lit @param {Span | null} brush
 * @returns {Drawing}
 */
function drawn(canvas, box, found, selected, lit, brush) {
  const style = getComputedStyle(canvas);
  /** @param {string} name */
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const names = box.clientWidth < 600 ? 70 : NAMES;
  const width = Math.max(box.clientWidth, 280);
  const tall = found.lanes.map((lane) => Math.min(MOST_LINES, Math.max(1, lane.lines, lane.bins.length ? 3 : 1)) * LINE);
  const height = HEAD + tall.reduce((sum, one) => sum + one + GAP, 0) + found.tokens.length * (LINE + GAP) + GAP;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  /** @param {number} instant */
  const x = (instant) => names + Math.max(-1, Math.min(2, (instant - found.from) / Math.max(1, found.to - found.from))) * (width - names - 8);
  axis(pen, found, x, width, height, colour);
  /** @type {Hit[]} */
  const hits = [];
  /** @type {WaitHit[]} */
  const waits = [];
  /** @param {() => void} paint what is in the plot, and not over the names */
  const clippedTo = (paint) => {
    pen.save();
    pen.beginPath();
    pen.rect(names, 0, width - names, height);
    pen.clip();
    paint();
    pen.restore();
  };
  let top = HEAD;
  for (const token of found.tokens) {
    pen.fillStyle = colour("ink");
    pen.fillText(clipped(pen, `token ${token.name} ${token.capacity ?? ""}`, names - 12), 4, top + LINE / 2);
    clippedTo(() => tokenSteps(pen, token, x, top, colour));
    top += LINE + GAP;
  }
  found.lanes.forEach((lane, number) => {
    const size = tall[number] ?? LINE;
    pen.fillStyle = colour("ink");
    pen.fillText(clipped(pen, lane.label, names - 12), 4, top + LINE / 2);
    clippedTo(() => hits.push(...(lane.bins.length ? bins(pen, lane, x, top, size, colour) : bars(pen, lane, x, [names, width], top, selected, lit, colour))));
    for (const wait of lane.bins.length ? [] : lane.waits) waits.push({ x: x(wait[1]), width: x(wait[2]) - x(wait[1]), y: top + Math.min(wait[0], Math.max(lane.lines - 1, 0)) * LINE + LINE / 2, wait });
    top += size + GAP;
  });
  if (brush !== null) {
    pen.globalAlpha = 0.2;
    pen.fillStyle = colour("accent");
    pen.fillRect(x(brush[0]), HEAD - 4, Math.max(1, x(brush[1]) - x(brush[0])), height);
    pen.globalAlpha = 1;
  }
  /** @param {number} place */
  const instant = (place) => Math.round(found.from + Math.max(-1, Math.min(2, (place - names) / (width - names - 8))) * (found.to - found.from));
  return { hits: hits.filter((one) => one.x + one.width >= names), waits, instant };
}

/**
 * The lane of a token: how many of its units were held, as steps; the line above them is its capacity.
 * @param {CanvasRenderingContext2D} pen @param {TokenLane} token @param {(instant: number) => number} x @param {number} top @param {(name: string) => string} colour
 */
function tokenSteps(pen, token, x, top, colour) {
  const size = LINE - 4;
  const most = Math.max(1, token.capacity ?? 0, ...token.steps.map(([, , held]) => held));
  pen.fillStyle = colour("line");
  pen.fillRect(x(-Infinity), top + 1, x(Infinity) - x(-Infinity), 1);
  for (const [begun, ended, held] of token.steps) {
    const tall = (held / most) * size;
    pen.fillStyle = colour(held < most ? "running" : "ready");
    pen.fillRect(x(begun), top + 2 + size - tall, Math.max(1, x(ended) - x(begun)), tall);
  }
}

/** @param {CanvasRenderingContext2D} pen @param {Timeline} found @param {(instant: number) => number} x @param {number} width @param {number} height @param {(name: string) => string} colour */
function axis(pen, found, x, width, height, colour) {
  const { ticks, step } = timeTicks(found.from, found.to, Math.max(2, Math.floor(width / 120)));
  let day = "";
  for (const instant of ticks) {
    const at = new Date(instant);
    pen.fillStyle = colour("line");
    pen.fillRect(x(instant), HEAD - 4, 1, height);
    pen.fillStyle = colour("soft-ink");
    const date = at.toLocaleDateString("en-CA", { timeZone: zone() });
    const time = at.toLocaleTimeString("en-GB", { timeZone: zone(), ...(step >= 60e3 ? { hour: "2-digit", minute: "2-digit" } : {}) }) + (step < 1000 ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "");
    pen.fillText(step >= 86400e3 ? date : date !== day ? `${date.slice(5)} ${time}` : time, x(instant) + 3, 9);
    day = date;
  }
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} room */
function clipped(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** @param {CanvasRenderingContext2D} pen @param {Lane} lane @param {(instant: number) => number} x @param {Span} edges @param {number} top @param {string} selected @param {Set<string>} lit @param {(name: string) => string} colour */
function bars(pen, lane, x, edges, top, selected, lit, colour) {
  /** @param {number} from @param {number} line @param {number} to @param {number} [next] */
  const stroke = (from, line, to, next = line) => {
    pen.stroke(new Path2D(`M${x(from)} ${top + line * LINE + LINE / 2} L${x(to)} ${top + next * LINE + LINE / 2}`));
  };
  pen.setLineDash([3, 3]);
  pen.strokeStyle = colour("soft-ink");
  for (const [line, start, end, , key] of lane.waits) {
    if (line >= MOST_LINES || (selected && !lit.has(key))) continue;
    stroke(start, Math.min(line, Math.max(lane.lines - 1, 0)), end);
  }
  pen.setLineDash([]);
  for (const [line, end, nextLine, start, key] of lane.joins) {
    if (Math.max(line, nextLine) >= MOST_LINES || (selected && !lit.has(key))) continue;
    stroke(end, line, start, nextLine);
  }
  return lane.bars.filter((bar) => bar[0] < MOST_LINES).map((bar) => {
    const [line, start, end, state, key, attempt] = bar;
    const [left, y] = [x(start), top + line * LINE + 2];
    const width = Math.max(2, x(end) - left - (x(end) - left > 4 ? 1 : 0));
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
    const begin = Math.max(left, edges[0]);
    const room = Math.min(left + width, edges[1]) - begin;
    if (room > 64) {
      pen.fillStyle = colour("on-state");
      pen.fillText(clipped(pen, `${glyph(state)} ${nameOfKey(key)}${attempt > 1 ? ` (${attempt})` : ""}`, room - 8), begin + 4, y + (LINE - 4) / 2);
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
