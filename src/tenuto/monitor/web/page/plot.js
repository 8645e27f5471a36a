// What every plot needs: round ticks, scales (also logarithmic), colours that people tell apart.
// Pure: it draws nothing.

import { short } from "./text.js";

/** Colours of lines and points that differ also to people who do not tell red from green (Okabe and Ito). */
export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#7f3fbf", "#5b6770"];

/** @typedef {{low: number, high: number, isLog: boolean, place: (value: number) => number, value: (place: number) => number, ticks: number[]}} Scale */

/**
 * Places values of a range between two ends.
 * @param {number} min @param {number} max @param {boolean} isLog @param {number} start @param {number} end @param {number} [count] how many ticks there is room for
 * @returns {Scale}
 */
export function scale(min, max, isLog, start, end, count = 5) {
  const logs = isLog && min > 0;
  const [low, high] = logs ? [Math.log10(min), Math.log10(max)] : [min, max];
  const width = high - low || 1;
  /** @param {number} value */
  const place = (value) => start + ((logs ? Math.log10(Math.max(value, 1e-300)) : value) - low) / width * (end - start);
  return {
    low: min, high: max, isLog: logs, place,
    value: (at) => {
      const found = low + ((Math.max(Math.min(start, end), Math.min(Math.max(start, end), at)) - start) / (end - start)) * width;
      return logs ? 10 ** found : found;
    },
    ticks: logs ? logTicks(min, max, count) : linearTicks(min, max, count),
  };
}

/**
 * Round numbers within a range, at most about so many.
 * @param {number} min @param {number} max @param {number} count
 */
export function linearTicks(min, max, count) {
  if (!(max > min)) return [min];
  const raw = (max - min) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw) ?? raw;
  /** @type {number[]} */
  const found = [];
  for (let value = Math.ceil(min / step - 1e-9) * step; value <= max + step * 1e-9 && found.length < 100; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

/** @param {number} min @param {number} max @param {number} count */
function logTicks(min, max, count) {
  const [first, last] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
  const few = last - first <= 2;
  const every = Math.max(1, Math.ceil((last - first) / Math.max(count, 1)));
  /** @type {number[]} */
  const found = [];
  for (let power = first; power <= last; power += every)
    for (const one of few ? [1, 2, 5] : [1]) if (one * 10 ** power >= min * 0.999 && one * 10 ** power <= max * 1.001) found.push(Number((one * 10 ** power).toPrecision(12)));
  return found.length > 1 ? found : [min, max];
}

const STEPS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/**
 * Round times of day within a span of milliseconds, and the step between them in milliseconds.
 * @param {number} from @param {number} to @param {number} count
 */
export function timeTicks(from, to, count) {
  const raw = (to - from) / 1000 / Math.max(1, count);
  const step = (STEPS_S.find((one) => one >= raw) ?? 2592000) * 1000;
  const shift = new Date(from).getTimezoneOffset() * 60e3;
  /** @type {number[]} */
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to && found.length < 100; at += step) found.push(at);
  return { ticks: found, step };
}

/** True if positive values span two decades or more: then an axis is better logarithmic. @param {number | null} min @param {number | null} max */
export const wantsLog = (min, max) => min !== null && max !== null && min > 0 && max / min >= 100;

const LESS = /(^|[._ /])(loss|error|err|cost|rmse|mse|mae|perplexity|ppl|regret|nll|wer|cer|time|seconds|latency|duration|took_s)$/i;

/** True if less of a metric is better, as far as its name tells. @param {string} name */
export const isLessBetter = (name) => LESS.test(name);

/** A number at an axis: three digits, since there is little room. @param {number | null} value */
export const tick = (value) => (value !== null && value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) ? value.toExponential(1).replace("e+", "e") : short(value === null || Number.isInteger(value) ? value : Number(value.toPrecision(3))));
