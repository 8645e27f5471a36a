// The log of a job: a window on its end that follows what is written, with line numbers, search and bars.
// It holds a bounded number of lines; what came before is asked for from the server.

import { followLog, get } from "./api.js";
import { copy } from "./ask.js";
import { coloured, h, put, safe, say } from "./dom.js";
import { download } from "./parts.js";
import { address, clock, nameOfKey, size } from "./text.js";

/** @import { JobDetail, LogPart } from "./types.js" */

const WRAP = "tenuto-wrap";
const TAIL = 65_536;
const MOST_LINES = 5_000;
const LONGEST = 4_000;
const STYLE = /(?:\u001b\[|\u009b)[0-9;:]*m/g;
const ERROR = /\b(error|exception|traceback|failed|fatal)\b/i;

/**
 * A line as a terminal would leave it: of what a carriage return overwrote, the last state; long ones cut.
 * @param {string} line
 */
export function settled(line) {
  let shown = line;
  if (line.includes("\r")) shown = line.split("\r").findLast((part) => part !== "") ?? "";
  return shown.length > LONGEST ? `${shown.slice(0, LONGEST)} … (${shown.length} characters)` : shown;
}

export class LogPanel {
  /** @param {string} key @param {number} [wanted] a line to show at once */
  constructor(key, wanted = 0) {
    this.key = key;
    this.wanted = wanted;
    this.isOver = false;
    this.stream = "out";
    this.earlier = 0;
    this.attempt = 0;
    this.next = 0;
    this.start = 0;
    this.follows = true;
    this.rest = "";
    this.version = 0;
    this.status = h("span", { class: "soft", role: "status" });
    this.before = h("button", { type: "button", class: "quiet", onclick: () => void this.load(true) }, "from the beginning");
    this.lines = h("div", { role: "log", class: "log", tabindex: 0, "aria-label": "Log", "aria-live": "off", onscroll: () => this.scrolled() });
    this.follow = h("button", { type: "button", "aria-pressed": "true", onclick: () => this.setFollowing(!this.follows) }, "Follow");
    this.search = h("input", { type: "search", "aria-label": "Search the log", placeholder: "search", oninput: () => this.find(this.search.value) });
    this.tabs = ["out", "err"].map((stream) => h("button", { type: "button", "aria-pressed": String(stream === "out"), "data-stream": stream, onclick: () => this.choose(stream, this.earlier) }, stream));
    this.attempts = h("span", {});
    this.wrap = h("button", { type: "button", "aria-pressed": String(localStorage.getItem(WRAP) !== "no"), onclick: () => this.setWrap(this.wrap.getAttribute("aria-pressed") !== "true") }, "wrap");
    this.lines.addEventListener("click", (event) => this.clicked(event));
    this.element = h("section", { class: "logbox", "aria-label": "Log" },
      h("div", { class: "bar" }, h("h2", {}, "Log"), this.tabs, this.attempts, this.follow, this.search,
        h("button", { type: "button", onclick: () => this.firstError() }, "first error"), this.wrap,
        h("button", { type: "button", onclick: () => void this.save() }, "download"), this.before, this.status),
      this.lines);
    this.setWrap(localStorage.getItem(WRAP) !== "no");
  }

  /**
   * Shows a stream of a job for the first time.
   * @param {string} stream @param {JobDetail} job @param {boolean} [isGuess] true if another is as good where nothing was written
   */
  show(stream, job, isGuess = false) {
    this.isGuess = isGuess && stream === "err";
    this.stream = stream === "err" ? "err" : "out";
    this.tell(job);
    for (const tab of this.tabs) tab.setAttribute("aria-pressed", String(tab.dataset.stream === this.stream));
    void this.load(this.wanted > 0);
  }

  /** @param {JobDetail} job */
  tell(job) {
    this.never = job.attempt === 0 ? "This job never started, so it wrote nothing." : "Nothing was written here.";
    this.isOver = job.state === "done" || job.state === "error";
    say(this.follow, this.isOver ? "to the end" : "Follow");
    if (this.isOver) this.follow.removeAttribute("aria-pressed");
    this.setAttempts(job.earlier_logs);
  }

  /** @param {boolean} wraps */
  setWrap(wraps) {
    localStorage.setItem(WRAP, wraps ? "yes" : "no");
    this.wrap.setAttribute("aria-pressed", String(wraps));
    this.lines.classList.toggle("flat", !wraps);
  }

  /** The whole log as a file, as far as the server gives it: a megabyte at a time. */
  async save() {
    let [text, from] = ["", 0];
    for (let part = 0; part < 64; part++) {
      const found = /** @type {LogPart} */ (await get("log", { key: this.key, stream: this.stream, earlier: this.earlier, from, limit: 1 << 20 }));
      text += found.text;
      if (found.next <= from) break;
      from = found.next;
    }
    download(`${nameOfKey(this.key).replace(/\W+/g, "-")}.${this.stream}.log`, text);
  }

  /**
   * A click on a number makes an address of the line.
   * @param {MouseEvent} event
   */
  clicked(event) {
    const line = event.target instanceof Element ? event.target.closest(".line") : null;
    const number = line?.getAttribute("data-line");
    if (!line || !number || event.clientX - line.getBoundingClientRect().left > 52) return;
    const link = address("job", { key: this.key, stream: this.stream, line: number });
    if (location.hash.startsWith("#/job")) history.replaceState(null, "", link);
    this.mark(Number(number));
    void copy(`${location.origin}/${link}`);
  }

  /** @param {number} number */
  mark(number) {
    for (const one of this.lines.querySelectorAll(".linked")) one.classList.remove("linked");
    const line = this.lines.querySelector(`[data-line="${number}"]`);
    line?.classList.add("linked");
    return line;
  }

  /** @param {number} earlier */
  setAttempts(earlier) {
    if (earlier <= 0 || this.attempts.dataset.many === String(earlier)) return;
    this.attempts.dataset.many = String(earlier);
    const select = h("select", { "aria-label": "Attempt", onchange: () => this.choose(this.stream, Number(select.value)) },
      Array.from({ length: earlier + 1 }, (_, back) => h("option", { value: back, selected: back === this.earlier }, back === 0 ? "this attempt" : `${back} before`)));
    put(this.attempts, select);
  }

  /** @param {string} stream @param {number} earlier */
  choose(stream, earlier) {
    this.isGuess = false;
    this.stream = stream;
    this.earlier = earlier;
    for (const tab of this.tabs) tab.setAttribute("aria-pressed", String(tab.dataset.stream === stream));
    void this.load();
  }

  /** @param {boolean} [fromStart] */
  async load(fromStart = false) {
    const version = ++this.version;
    const range = fromStart ? { from: 0, limit: 16 * TAIL } : { tail: TAIL };
    try {
      const part = /** @type {LogPart} */ (await get("log", { key: this.key, stream: this.stream, earlier: this.earlier, ...range }));
      if (version !== this.version) return;
      if (this.isGuess && !part.text) return this.choose("out", this.earlier);
      this.isGuess = false;
      this.begin(part);
      if (fromStart) {
        this.setFollowing(false);
        this.lines.scrollTop = 0;
        if (this.wanted) this.mark(this.wanted)?.scrollIntoView({ block: "center" });
        this.wanted = 0;
      } else this.setFollowing(true);
      if (this.earlier === 0 && !fromStart) followLog(this.key, this.stream, this.next);
    } catch (error) {
      if (version === this.version) put(this.lines, h("p", { class: "soft" }, error instanceof Error ? error.message : String(error)));
    }
  }

  /** An answer that is still on its way is left alone: another view may follow another log by then. */
  close() {
    this.version += 1;
  }

  /** @param {LogPart} part */
  begin(part) {
    this.attempt = part.attempt;
    this.start = part.offset;
    this.count = 0;
    this.rest = "";
    put(this.lines);
    this.before.hidden = part.offset === 0;
    this.add(part.text, part);
  }

  /** @param {LogPart} part */
  take(part) {
    if (part.key !== this.key || part.stream !== this.stream || this.earlier !== 0) return;
    if (part.attempt === this.attempt && part.offset === this.next) this.add(part.text, part, `came at ${clock(Date.now())}`);
    else if (part.offset === 0) this.begin(part); // a new attempt, or a log that was replaced
    else void this.load();
  }

  /** @param {string} text @param {LogPart} part @param {string} [came] when, of lines that were followed */
  add(text, part, came = "") {
    this.next = part.next;
    const pieces = (this.rest + text).replaceAll("\r\n", "\n").split("\n");
    this.rest = (pieces.pop() ?? "").slice(-256 * 1024);
    if (this.rest === "\r") this.rest = "";
    const open = this.lines.lastElementChild;
    if (open?.classList.contains("open")) {
      open.remove();
      this.count = (this.count ?? 1) - 1;
    }
    if (this.lines.firstElementChild?.tagName === "P") put(this.lines);
    const kept = pieces.slice(-MOST_LINES);
    this.count = (this.count ?? 0) + pieces.length - kept.length;
    this.lines.append(...kept.map((line) => this.line(line, came)));
    if (this.rest) {
      const last = this.line(this.rest, came);
      last.classList.add("open");
      this.lines.append(last);
    }
    while (this.lines.childElementCount > MOST_LINES) this.lines.firstElementChild?.remove();
    if (this.search.value) this.find(this.search.value, false);
    if (this.follows) this.lines.scrollTop = this.lines.scrollHeight;
    this.told(part);
  }

  /** @param {LogPart} part */
  told(part) {
    const lines = this.count ?? 0;
    const words = part.ended || this.isOver ? "ended" : this.follows ? "following" : "not following";
    if (!lines && !this.rest) put(this.lines, h("p", { class: "soft" }, this.never));
    say(this.status, `${lines.toLocaleString("en")} ${lines === 1 ? "line" : "lines"}${this.start > 0 ? ` of the last ${size(this.next - this.start)}` : ""}, ${words}`);
    this.last = part;
  }

  /** @param {string} line @param {string} came */
  line(line, came) {
    this.count = (this.count ?? 0) + 1;
    const text = settled(line);
    return h("div", { class: ERROR.test(text.replace(STYLE, "")) ? "line bad" : "line", "data-line": this.start > 0 ? "" : this.count, title: came || null }, coloured(text || " "));
  }

  scrolled() {
    const isAtEnd = this.lines.scrollTop + this.lines.clientHeight >= this.lines.scrollHeight - 24;
    if (isAtEnd !== this.follows) this.setFollowing(isAtEnd, false);
  }

  /** @param {boolean} follows @param {boolean} [scrolls] */
  setFollowing(follows, scrolls = true) {
    this.follows = follows;
    if (!this.isOver) this.follow.setAttribute("aria-pressed", String(follows));
    if (follows && scrolls) this.lines.scrollTop = this.lines.scrollHeight;
    if (this.last) this.told(this.last);
  }

  /** @param {string} text @param {boolean} [scrolls] */
  find(text, scrolls = true) {
    const wanted = safe(text).toLowerCase();
    let first = null;
    for (const line of this.lines.children) {
      const found = wanted !== "" && (line.textContent ?? "").toLowerCase().includes(wanted);
      line.classList.toggle("found", found);
      if (found) first ??= line;
    }
    if (first && scrolls) {
      this.setFollowing(false);
      first.scrollIntoView({ block: "center" });
    }
  }

  firstError() {
    this.setFollowing(false);
    this.lines.querySelector(".bad")?.scrollIntoView({ block: "center" });
  }
}
