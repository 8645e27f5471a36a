// Metrics over time on a canvas: one metric of many jobs, or all metrics of one job.
// Lines are painted a few at a time on a hidden canvas, so that no frame waits for hundreds of them.

import { followMetrics, get } from "./api.js";
import { h, keyed, put, say } from "./dom.js";
import { choice, empty, groupChoice, stateMark, throttled } from "./parts.js";
import { COLOURS, isLessBetter, linearTicks, scale, tick } from "./plot.js";
import { address, duration, nameOfKey, percent, short, size } from "./text.js";

/** @import { Curve, Groups, JobCurves, Metrics, Place, View } from "./types.js" */
/** @import { Scale } from "./plot.js" */
/** @typedef {{key: string, label: string, colour: string, x: number[], y: (number | null)[], raw: (number | null)[], range?: Range}} Line */
/** @typedef {[left: number, right: number, low: number, high: number]} Range */
/** @typedef {{count: number, x: number | undefined, y: number | null | undefined}} End */
/** @typedef {{isLogX?: boolean, isLogY?: boolean, smoothing?: number, byTime?: boolean, name?: string}} Look */

const [LEFT, RIGHT, TOP, BOTTOM] = [62, 10, 10, 26];
const SLICE_MS = 12;
const FIRST_SLICE_MS = 60; // nothing is seen yet, so nothing stutters
const ROOM = 0.1; // of a range that grew, for what comes next: while it suffices, only new points are painted
const NEAR = 40;
const MOST_JOBS = 200;
const MOST_POINTS = 1000;
const MOST_LISTED = 50;
const LISTED_MS = 400; // nobody reads numbers that change faster
export const SYSTEM = "system/";
/** How values of what runners measured read: bytes, and parts of 1. @type {Map<string, (value: number | null) => string>} */
const UNITS = new Map([["memory", size], ["gpu_memory", size], ["gpu", percent], ["host_cpu", percent], ["host_memory", percent]].map(([name, unit]) => [SYSTEM + name, /** @type {(value: number | null) => string} */ (unit)]));

/** A value of a metric, as people read it. @param {string | undefined} name @param {number | null} value */
export const valueText = (name, value) => (value === null ? short(null) : (UNITS.get(name ?? "") ?? short)(value));
const SHADES = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

/**
 * Values with less noise: each is drawn towards those before it; a gap stays a gap.
 * @param {(number | null)[]} values @param {number} weight from 0 to 1
 */
export function smoothed(values, weight) {
  if (!weight) return values;
  let [sum, norm] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}

/** A plot of lines; the last line is in front. */
export class CurvePlot {
  /** @param {string} label @param {number} height @param {(key: string) => void} [open] */
  constructor(label, height, open) {
    this.label = label;
    this.height = height;
    /** @type {Line[]} */
    this.lines = [];
    /** @type {Look} */
    this.look = {};
    this.version = 0;
    this.isPainting = this.isDirty = false;
    /** @type {Line | null} */
    this.near = null;
    this.canvas = h("canvas", { role: "img", "aria-label": label });
    this.above = h("canvas", { class: "above", "aria-hidden": "true" });
    this.words = h("p", { class: "tip soft", role: "status" });
    this.element = h("div", { class: "plot" }, this.canvas, this.above, this.words);
    this.hidden = document.createElement("canvas");
    // Painted by the processor, at once: else all is painted late, in one long frame.
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.hidden.getContext("2d", { willReadFrequently: true }));
    /** What the hidden canvas shows. @type {{as: string, ends: Map<string, End>} | null} */
    this.painted = null;
    /** @type {{look: string, range: Range} | null} */
    this.frame = null;
    this.above.addEventListener("pointermove", (event) => this.hover(event));
    this.above.addEventListener("pointerleave", () => this.point(null, -1));
    this.above.addEventListener("click", () => { if (this.near && open) open(this.near.key); });
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
  }

  close() {
    this.version += 1;
    this.resized.disconnect();
  }

  /** @param {Line[]} lines @param {Look} look */
  show(lines, look) {
    this.lines = lines;
    this.look = look;
    if (this.isPainting) this.isDirty = true;
    else this.draw();
  }

  /** Paints what is new, or all lines, some milliseconds a frame; what was there before stays until they are done. */
  draw() {
    const mine = ++this.version;
    [this.isPainting, this.isDirty] = [true, false];
    const width = Math.max(this.element.clientWidth, 200);
    const ratio = devicePixelRatio || 1;
    const pen = this.pen;
    const [x, y] = this.scales(width);
    this.x = x;
    this.y = y;
    const style = getComputedStyle(this.element);
    const as = JSON.stringify([width, ratio, this.look, x.low, x.high, y.low, y.high, style.color, this.lines.at(-1)?.key, this.lines.length]);
    const before = this.painted;
    const old = before?.as === as && this.lines.every((line) => goesOn(line, before.ends.get(`${line.key} ${line.colour}`))) ? before.ends : null;
    const sliceMs = before ? SLICE_MS : FIRST_SLICE_MS;
    this.painted = null;
    if (!old) {
      this.hidden.width = width * ratio;
      this.hidden.height = this.height * ratio;
      pen.scale(ratio, ratio);
      this.axes(pen, x, y, width, (name) => style.getPropertyValue(`--${name}`));
    }
    /** @type {Map<string, End>} */
    const ends = new Map();
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP - 2, width - LEFT - RIGHT, this.height - TOP - BOTTOM + 4);
    pen.clip();
    pen.lineJoin = "round";
    const lines = this.lines;
    const many = lines.length > 12;
    let next = 0;
    const slice = () => {
      if (mine !== this.version) return;
      const until = performance.now() + sliceMs;
      while (next < lines.length && performance.now() < until) {
        const line = lines[next++];
        if (!line) continue;
        const isBest = next === lines.length && lines.length > 1;
        const name = `${line.key} ${line.colour}`;
        const count = line.x.length;
        const from = Math.max(0, (old?.get(name)?.count ?? 0) - 1);
        ends.set(name, { count, x: line.x[count - 1], y: line.y[count - 1] });
        if (old && from === count - 1) continue;
        if (line.raw !== line.y && !many) this.stroke(pen, line.x, line.raw, line.colour, 1, 0.25, from);
        this.stroke(pen, line.x, line.y, line.colour, isBest ? 2.5 : many ? 1 : 1.6, isBest || !many ? 1 : 0.55, from);
      }
      if (next < lines.length) return void requestAnimationFrame(slice);
      pen.restore();
      this.painted = { as, ends };
      this.swap(ratio, width);
      this.element.dataset.drawn = String(lines.length);
      this.isPainting = false;
      if (this.isDirty) requestAnimationFrame(() => this.draw());
    };
    slice();
  }

  /** @param {number} ratio @param {number} width */
  swap(ratio, width) {
    for (const canvas of [this.canvas, this.above]) {
      if (canvas.width !== this.hidden.width || canvas.height !== this.hidden.height) {
        canvas.width = this.hidden.width;
        canvas.height = this.hidden.height;
        canvas.style.height = `${this.height}px`;
        canvas.style.width = `${width}px`;
      }
    }
    const shown = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { willReadFrequently: true }));
    shown.clearRect(0, 0, this.canvas.width, this.canvas.height);
    shown.drawImage(this.hidden, 0, 0);
    this.ratio = ratio;
  }

  /** @param {number} width @returns {[Scale, Scale]} */
  scales(width) {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of this.lines) {
      const range = line.range ??= rangeOf(line, this.look);
      [left, right] = [Math.min(left, range[0]), Math.max(right, range[1])];
      [low, high] = [Math.min(low, range[2]), Math.max(high, range[3])];
    }
    if (left > right) [left, right, low, high] = [0, 1, 0, 1];
    [left, right, low, high] = this.roomy([left, right, low, high]);
    if (this.look.name?.startsWith(SYSTEM) && !this.look.isLogY) [low, high] = [0, UNITS.get(this.look.name) === percent ? 1 : high * 1.05];
    if (left === right) [left, right] = this.look.isLogX ? [left / 2, right * 2] : [left - 0.5, right + 0.5];
    if (low === high) [low, high] = this.look.isLogY ? [low / 2, high * 2] : [low - Math.abs(low || 1) / 2, high + Math.abs(high || 1) / 2];
    return [
      scale(left, right, this.look.isLogX ?? false, LEFT, width - RIGHT, Math.max(2, Math.floor(width / 110))),
      scale(low, high, this.look.isLogY ?? false, this.height - BOTTOM, TOP, Math.max(2, Math.floor(this.height / 45))),
    ];
  }

  /**
   * The range that is shown already, while it holds what is there; one with some room where that grew.
   * @param {Range} range @returns {Range}
   */
  roomy(range) {
    const look = JSON.stringify([this.look, this.lines.length]);
    const before = this.frame?.look === look ? this.frame.range : null;
    const [left, right, low, high] = range;
    const isHeld = before && before[0] === left && before[1] >= right && before[2] <= low && before[3] >= high;
    if (isHeld && right - left > 0.75 * (before[1] - left) && (this.look.isLogY || high - low > 0.75 * (before[3] - before[2]))) return before;
    if (before && before[0] === left && right >= before[1]) {
      if (right > before[1]) range[1] = this.look.isLogX ? right * (1 + ROOM) : right + (right - left) * ROOM;
      if (low < before[2]) range[2] = this.look.isLogY ? low * (1 - ROOM) : low >= 0 ? Math.max(0, low - (high - low) * ROOM) : low - (high - low) * ROOM;
      if (high > before[3]) range[3] = this.look.isLogY ? high * (1 + ROOM) : high + (high - low) * ROOM;
    }
    this.frame = { look, range };
    return range;
  }

  /** @param {CanvasRenderingContext2D} pen @param {Scale} x @param {Scale} y @param {number} width @param {(name: string) => string} colour */
  axes(pen, x, y, width, colour) {
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colour("soft-ink");
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.beginPath();
    for (const value of y.ticks) {
      const at = Math.round(y.place(value)) + 0.5;
      pen.moveTo(LEFT, at);
      pen.lineTo(width - RIGHT, at);
      pen.fillText((UNITS.get(this.look.name ?? "") ?? tick)(value), LEFT - 6, at);
    }
    pen.textAlign = "center";
    for (const value of x.ticks) {
      const at = Math.round(x.place(value)) + 0.5;
      pen.moveTo(at, TOP);
      pen.lineTo(at, this.height - BOTTOM);
      pen.fillText(this.look.byTime ? duration(value) : tick(value), Math.min(Math.max(at, LEFT + 8), width - 18), this.height - BOTTOM + 14);
    }
    pen.stroke();
  }

  /**
   * One line; it is interrupted where a value is missing or has no place. Points on one pixel are drawn once.
   * @param {CanvasRenderingContext2D} pen @param {number[]} xs @param {(number | null)[]} ys @param {string} colour @param {number} wide @param {number} alpha @param {number} [from] the first point
   */
  stroke(pen, xs, ys, colour, wide, alpha, from = 0) {
    const [x, y] = [this.x, this.y];
    if (!x || !y) return;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = wide;
    pen.globalAlpha = alpha;
    pen.beginPath();
    let [isOpen, lastX, lastY, run] = [false, -1e9, -1e9, 0];
    const near = this.lines.length > 12 ? 1.2 : 0.4; // of many faint lines nobody sees half a pixel
    for (let at = from; at < xs.length; at++) {
      const value = ys[at];
      if (value === null || value === undefined || (y.isLog && value <= 0) || (x.isLog && (xs[at] ?? 0) <= 0)) {
        if (run === 1) pen.fillRect(lastX - 3, lastY - 3, 6, 6);
        [isOpen, run] = [false, 0];
        continue;
      }
      const [px, py] = [x.place(xs[at] ?? 0), y.place(value)];
      if (isOpen && at < xs.length - 1 && Math.abs(px - lastX) < near && Math.abs(py - lastY) < near) continue;
      if (isOpen) pen.lineTo(px, py);
      else pen.moveTo(px, py);
      [isOpen, lastX, lastY, run] = [true, px, py, run + 1];
    }
    if (run === 1) pen.fillRect(lastX - 3, lastY - 3, 6, 6);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const [x, y] = [this.x, this.y];
    if (!x || !y) return;
    const { left, top } = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - left, event.clientY - top];
    /** @type {Line | null} */
    let found = null;
    let [place, distance] = [-1, NEAR];
    for (const line of this.lines) {
      const at = nearest(line.x, x.value(px));
      const value = line.y[at];
      if (value === null || value === undefined || (y.isLog && value <= 0)) continue;
      const far = Math.hypot(y.place(value) - py, (x.place(line.x[at] ?? 0) - px) / 2);
      if (far <= distance) [found, place, distance] = [line, at, far];
    }
    this.point(found, place);
  }

  /** @param {Line | null} line @param {number} at */
  point(line, at) {
    this.near = line;
    const pen = /** @type {CanvasRenderingContext2D} */ (this.above.getContext("2d"));
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.above.width, this.above.height);
    this.above.classList.toggle("pointing", line !== null);
    if (!line || !this.x || !this.y) return say(this.words, "");
    pen.scale(this.ratio ?? 1, this.ratio ?? 1);
    this.stroke(pen, line.x, line.y, line.colour, 3, 1);
    const value = line.y[at];
    if (value !== null && value !== undefined) {
      pen.beginPath();
      pen.arc(this.x.place(line.x[at] ?? 0), this.y.place(value), 4.5, 0, 7);
      pen.fillStyle = line.colour;
      pen.fill();
    }
    const where = this.look.byTime ? `after ${duration(line.x[at])}` : `step ${short(line.x[at])}`;
    say(this.words, `${line.label}  ${where}: ${valueText(this.look.name, value ?? null)}${line.raw !== line.y ? ` (raw ${valueText(this.look.name, line.raw[at] ?? null)})` : ""}`);
  }
}

/** True if a line has all that was painted of it, as far as its end tells. @param {Line} line @param {End | undefined} end */
const goesOn = (line, end) => end !== undefined && end.count > 0 && line.x[end.count - 1] === end.x && line.y[end.count - 1] === end.y;

/** @param {Line} line @param {Look} look @returns {Range} where its points lie, but for those that a logarithm has no place for */
function rangeOf(line, look) {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let at = 0; at < line.x.length; at++) {
    const [x, y] = [line.x[at] ?? 0, line.y[at]];
    if (y === null || y === undefined || (look.isLogY && y <= 0) || (look.isLogX && x <= 0)) continue;
    if (x < left) left = x;
    if (x > right) right = x;
    if (y < low) low = y;
    if (y > high) high = y;
  }
  return [left, right, low, high];
}

/**
 * The place of the number that is nearest in a sorted list.
 * @param {number[]} sorted @param {number} value
 */
function nearest(sorted, value) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && value - (sorted[low - 1] ?? 0) < (sorted[low] ?? 0) - value ? low - 1 : low;
}

/** @type {WeakMap<Curve, {asked: string, line: Line}>} */
const made = new WeakMap();

/** @param {Curve} curve @param {Look} look @param {string} key @param {string} label @param {string} colour @returns {Line} */
function lineOf(curve, look, key, label, colour) {
  const asked = `${look.isLogX} ${look.isLogY} ${look.byTime} ${look.smoothing} ${colour}`;
  const before = made.get(curve);
  if (before?.asked === asked) return before.line;
  const line = newLine(curve, look, key, label, colour);
  made.set(curve, { asked, line });
  return line;
}

/** @param {Curve} curve @param {Look} look @param {string} key @param {string} label @param {string} colour @returns {Line} */
function newLine(curve, look, key, label, colour) {
  const first = curve.times.find((time) => time !== null) ?? 0;
  const x = look.byTime ? curve.times.map((time) => Math.max(0, (time ?? first) - first)) : curve.steps;
  return { key, label, colour, x, raw: curve.values, y: smoothed(curve.values, look.smoothing ?? 0) };
}

/**
 * All curves of one job, below its facts; nothing where it logged none.
 * @param {HTMLElement} place @param {string} key
 */
export function jobCurves(place, key) {
  /** @type {Map<string, CurvePlot>} */
  const plots = new Map();
  const used = h("div", {});
  const usage = h("details", { class: "usage" }, h("summary", {}, "Resources over time"), used);
  const load = async () => {
    const found = /** @type {Metrics} */ (await get("metrics", { key, points: MOST_POINTS }));
    for (const curve of found.jobs[0]?.curves ?? []) {
      const isUsage = curve.name.startsWith(SYSTEM);
      const words = isUsage ? curve.name.slice(SYSTEM.length).replace("_", " ") : curve.name;
      const look = { byTime: isUsage, name: curve.name };
      let plot = plots.get(curve.name);
      if (!plot) {
        plot = new CurvePlot(`${words} by ${isUsage ? "time" : "step"}`, isUsage ? 110 : 150);
        plots.set(curve.name, plot);
        if (isUsage && !usage.isConnected) place.append(usage);
        const section = h("section", { "aria-label": words }, h("h2", {}, words, " ", h("span", { class: "soft", "data-last": curve.name })), plot.element);
        if (isUsage) used.append(section);
        else place.insertBefore(section, usage.isConnected ? usage : null);
      }
      const last = place.querySelector(`[data-last="${CSS.escape(curve.name)}"]`);
      if (last) say(last, `${valueText(curve.name, curve.last)}  min ${valueText(curve.name, curve.min)}  max ${valueText(curve.name, curve.max)}`);
      plot.show([lineOf(curve, look, key, words, COLOURS[0] ?? "")], look);
    }
  };
  const soon = throttled(() => load().catch(() => undefined), 250);
  soon();
  return { soon, close: () => { for (const plot of plots.values()) plot.close(); } };
}

/** @param {Place} place @returns {Promise<View>} */
export async function curves({ main, query }) {
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  const group = query.get("group") ?? groups[0]?.group ?? "";
  const filter = query.get("filter") ?? "";
  put(main, h("div", { class: "bar" }, h("h1", {}, "Curves"), group && groupChoice(groups, group, (value) => { location.hash = address("curves", { group: value }); })));
  if (!group) {
    main.append(empty("There is no run, service or search here yet.", "tenuto run script.py"));
    return {};
  }
  const chosen = { name: query.get("name") ?? "", colour: "", isLogX: false, isLogY: false, byTime: false, smoothing: 0 };
  /** @type {Map<string, JobCurves>} */
  const jobs = new Map();
  let [total, newest] = [0, 0];
  /** @type {string[]} */
  let names = [];
  const controls = h("div", { class: "bar" });
  const plot = new CurvePlot("Curves; the list beside them names every job", Math.max(300, Math.min(innerHeight - 270, 760)), (key) => { location.hash = address("job", { key }); });
  const list = h("ul", { class: "plain legendlist", "aria-label": "Jobs" });
  const count = h("span", { class: "soft", role: "status" });
  const nothing = h("div", {});
  const body = h("div", { class: "columns curvesview" }, plot.element, h("section", { "aria-label": "Jobs" }, h("h2", {}, "Jobs, best first"), list));

  /** @param {JobCurves} job */
  const curveOf = (job) => job.curves.find((one) => one.name === chosen.name);
  const draw = () => {
    const less = isLessBetter(chosen.name);
    const known = [...jobs.values()].filter((job) => curveOf(job)).sort((one, other) => (less ? 1 : -1) * ((best(curveOf(one), less) ?? 0) - (best(curveOf(other), less) ?? 0)));
    const paint = painter(known, chosen.colour, [...jobs.keys()]);
    const lines = known.map((job) => lineOf(/** @type {Curve} */ (curveOf(job)), chosen, job.key, labelOf(job), paint(job)));
    plot.show([...lines].reverse(), chosen);
    body.hidden = !known.length;
    put(nothing, !known.length && empty(names.length ? "No job logged this metric." : "No job logged a metric yet. In execute():", 'from tenuto import log_metrics\nlog_metrics({"loss": 0.31}, step=epoch)'));
    listed = () => tell(known, less, paint);
    listSoon();
  };
  let listed = () => {};
  const listSoon = throttled(() => listed(), LISTED_MS);
  /** @param {JobCurves[]} known @param {boolean} less @param {(job: JobCurves) => string} paint */
  const tell = (known, less, paint) => {
    say(count, `${short(known.length)}${total > known.length ? ` of ${short(total)}` : ""} jobs`);
    keyed(list, known.slice(0, MOST_LISTED), (job) => `${job.key} ${curveOf(job)?.last} ${job.state} ${chosen.name}`, (job) => {
      const mark = h("span", { class: "swatch", "aria-hidden": "true" });
      mark.style.background = paint(job);
      const curve = curveOf(job);
      return h("li", {}, mark, stateMark(job.state, h("a", { href: address("job", { key: job.key }), "data-key": job.key }, nameOfKey(job.key))),
        h("span", { class: "soft" }, ` ${tagsOf(job)} `), h("b", {}, valueText(chosen.name, best(curve, less) ?? null)), h("span", { class: "soft" }, `last ${valueText(chosen.name, curve?.last ?? null)}`));
    });
  };
  const anew = () => {
    jobs.clear();
    newest = 0;
    void load().then(draw);
  };
  const choose = () => {
    if (!names.includes(chosen.name)) chosen.name = names[0] ?? "";
    const tags = [...new Set([...jobs.values()].flatMap((job) => Object.keys(job.tags)))];
    /** @param {"isLogX" | "isLogY" | "byTime"} name @param {string} words */
    const box = (name, words) => {
      const input = h("input", { type: "checkbox", checked: chosen[name], onchange: () => { chosen[name] = input.checked; if (name === "byTime") anew(); else draw(); } });
      return h("label", { class: "choice" }, input, words);
    };
    const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: chosen.smoothing, oninput: () => { chosen.smoothing = Number(slider.value); draw(); } });
    put(controls,
      choice("Metric", names.map((name) => [name, name]), chosen.name, (value) => { chosen.name = value; anew(); }),
      choice("Colour", [["", "by job"], ...tags.map((tag) => /** @type {[string, string]} */ ([tag, tag]))], chosen.colour, (value) => { chosen.colour = value; draw(); }),
      box("isLogX", "log x"), box("isLogY", "log y"), box("byTime", "by time"), h("label", { class: "choice" }, h("span", {}, "Smoothing"), slider), count);
  };
  /** @param {string[]} [keys] only what is new of these jobs */
  const load = async (keys) => {
    const asked = keys && newest ? { key: keys, since: newest } : { group, filter };
    if (!chosen.name) { // which metrics there are, first: the points of all of them may be many times as much
      names = /** @type {Metrics} */ (await get("metrics", { group, filter, points: 4, limit: 1 })).names;
      chosen.name = names[0] ?? "";
    }
    const [name, byTime] = [chosen.name, chosen.byTime];
    const found = /** @type {Metrics} */ (await get("metrics", { ...asked, name, points: MOST_POINTS, limit: MOST_JOBS, packed: byTime ? "times" : "steps" }));
    if (name !== chosen.name || byTime !== chosen.byTime) return; // another look was chosen meanwhile, and asks for itself
    if (!keys) [names, total] = [found.names, found.total];
    for (const job of found.jobs) {
      for (const curve of job.curves) newest = Math.max(newest, unpack(curve));
      const before = keys && newest ? jobs.get(job.key) : undefined;
      jobs.set(job.key, before ? { ...job, curves: job.curves.map((curve) => joined(before.curves.find((one) => one.name === curve.name), curve)) } : job);
    }
  };
  await load();
  main.append(controls, nothing, body);
  choose();
  draw();
  followMetrics([group]);
  /** @type {Set<string>} */
  const grown = new Set();
  const grow = throttled(async () => {
    const keys = [...grown];
    grown.clear();
    const before = names.length;
    await load(before ? keys : undefined);
    if (!before) choose();
    draw();
  }, 50);
  return {
    title: "Curves",
    metrics: (keys) => {
      for (const key of keys) grown.add(key);
      grow();
    },
    reset: () => { newest = 0; void load().then(() => { choose(); draw(); }, () => undefined); },
    close: () => { plot.close(); followMetrics([]); },
  };
}

/** Fills in the points that came packed. @param {Curve} curve @returns {number} the newest time */
function unpack(curve) {
  const packed = curve.packed;
  if (!packed) return 0;
  curve.values = numbers(packed.values, packed.bits);
  const [first = 0, distance = 0] = packed.steps;
  curve.steps = packed.even ? curve.values.map((_, at) => first + at * distance) : packed.steps;
  curve.times = packed.times === null ? [] : numbers(packed.times, 64);
  return packed.newest ?? 0;
}

/** @param {string} text @param {number} bits @returns {(number | null)[]} null where it is no number */
function numbers(text, bits) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  const found = bits === 32 ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
  return Array.from(found, (value) => (Number.isNaN(value) ? null : value));
}

/**
 * The points of a curve, and those that came since; a step that comes twice counts the later one.
 * @param {Curve | undefined} before @param {Curve} after @returns {Curve}
 */
function joined(before, after) {
  if (!before || !after.steps.length) return before ? { ...after, steps: before.steps, times: before.times, values: before.values } : after;
  const first = after.steps[0] ?? 0;
  let end = before.steps.length;
  while (end && (before.steps[end - 1] ?? 0) >= first) end -= 1;
  const isLonger = end === before.steps.length; // then nothing is copied: hundreds of curves grow, many times a second
  /** @template Item @param {Item[]} old @param {Item[]} more */
  const both = (old, more) => (isLonger ? (old.push(...more), old) : [...old.slice(0, end), ...more]);
  return { ...after, steps: both(before.steps, after.steps), times: both(before.times, after.times), values: both(before.values, after.values) };
}

/** @param {Curve | undefined} curve @param {boolean} less */
const best = (curve, less) => (less ? curve?.min : curve?.max);

/** @param {JobCurves} job */
const tagsOf = (job) => Object.entries(job.tags).map(([name, value]) => `${name}=${value}`).join(" ");

/** @param {JobCurves} job */
const labelOf = (job) => `${nameOfKey(job.key)} ${tagsOf(job)}`.trim();

/**
 * Which colour a job has: of its own, or of the value of a tag; numbers from dark to light.
 * @param {JobCurves[]} jobs @param {string} tag @param {string[]} keys as they came, so that a colour stays @returns {(job: JobCurves) => string}
 */
function painter(jobs, tag, keys) {
  if (!tag) return (job) => COLOURS[keys.indexOf(job.key) % COLOURS.length] ?? "";
  const values = [...new Set(jobs.map((job) => job.tags[tag] ?? ""))].sort();
  const numbers = values.map(Number);
  if (values.length > COLOURS.length && numbers.every(Number.isFinite)) {
    const ticks = linearTicks(Math.min(...numbers), Math.max(...numbers), SHADES.length);
    const [low, high] = [Math.min(...numbers), Math.max(...numbers, ...ticks)];
    return (job) => SHADES[Math.min(SHADES.length - 1, Math.floor(((Number(job.tags[tag]) - low) / (high - low || 1)) * SHADES.length))] ?? "";
  }
  return (job) => COLOURS[values.indexOf(job.tags[tag] ?? "") % COLOURS.length] ?? "";
}
