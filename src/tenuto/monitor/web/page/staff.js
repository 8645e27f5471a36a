// The staffs of the score on a canvas: notes, waits, attempts joined, tokens over time, the playhead, a brush.
// Lines, steps and bins are computed by the server; this module only places them.

import { glyph, nameOfKey, STATES } from "./words.js";

/** @import { Bar, Lane, Score, State, TokenLane } from "./types.js" */

const LINE = 22;
const HEAD = 20;
const GAP = 10;
const NAMES = 130;
const MOST_LINES = 40;

/** @typedef {{x: number, y: number, width: number, bar: Bar}} Hit */
/** @typedef {[from: number, to: number]} Span */
/** @typedef {{hits: Hit[], instant: (place: number) => number}} Drawing */

/**
 * The note at a place of the canvas.
 * @param {Hit[]} hits @param {number} x @param {number} y
 */
export const noteAt = (hits, x, y) => hits.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + LINE);

/**
 * @param {HTMLCanvasElement} canvas @param {HTMLElement} box @param {Score} found
 * @param {number | null} playhead @param {string} selected @param {Set<string>} lit @param {Span | null} brush
 * @returns {Drawing}
 */
export function drawn(canvas, box, found, playhead, selected, lit, brush) {
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
  const x = (instant) => names + Math.max(0, Math.min(1, (instant - found.from) / Math.max(1, found.to - found.from))) * (width - names - 8);
  axis(pen, found, x, width, height, colour);
  /** @type {Hit[]} */
  const hits = [];
  let top = HEAD;
  for (const token of found.tokens) {
    pen.fillStyle = colour("ink");
    pen.fillText(clipped(pen, `token ${token.name} ${token.capacity ?? ""}`, names - 12), 4, top + LINE / 2);
    tokenSteps(pen, token, x, top, colour);
    top += LINE + GAP;
  }
  found.lanes.forEach((lane, number) => {
    const size = tall[number] ?? LINE;
    pen.fillStyle = colour("ink");
    pen.fillText(clipped(pen, lane.label, names - 12), 4, top + LINE / 2);
    hits.push(...(lane.bins.length ? bins(pen, lane, x, top, size, colour) : notes(pen, lane, x, top, selected, lit, colour)));
    top += size + GAP;
  });
  if (brush !== null) {
    pen.globalAlpha = 0.2;
    pen.fillStyle = colour("accent");
    pen.fillRect(x(brush[0]), HEAD - 4, Math.max(1, x(brush[1]) - x(brush[0])), height);
    pen.globalAlpha = 1;
  }
  if (playhead !== null) {
    pen.fillStyle = colour("accent");
    pen.fillRect(Math.max(names, Math.min(x(playhead), width - 4)) - 1, 0, 2, height);
  }
  /** @param {number} place */
  const instant = (place) => Math.round(found.from + (Math.max(0, Math.min(1, (place - names) / (width - names - 8)))) * (found.to - found.from));
  return { hits, instant };
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
  for (const [line, end, nextLine, start, key] of lane.joins) {
    if (Math.max(line, nextLine) >= MOST_LINES || (selected && !lit.has(key))) continue;
    pen.beginPath();
    pen.moveTo(x(end), top + line * LINE + LINE / 2);
    pen.lineTo(x(start), top + nextLine * LINE + LINE / 2);
    pen.stroke();
  }
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
