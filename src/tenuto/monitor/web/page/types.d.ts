// The answers of the server, as `monitor/shapes.py` writes them; read by the type checker only.

export type State = "unscheduled" | "waiting" | "ready" | "scheduled" | "running" | "done" | "error";

export interface Stamp { epoch: string; seq: number; now: string }

export interface Job {
  key: string; group: string; kind: string; name: string; task: string; id: string;
  state: State; status: string; reason: string | null; message: string | null;
  experiment: string | null; run: string | null; attempt: number;
  tags: Record<string, string>; depends_on: string[]; transient: string; owner: string; where: string;
  submitted: string | null; started: string | null; ended: string | null; duration_s: number | null;
  progress: number | null; progress_desc: string | null; eta_s: number | null;
  energy_kwh: number | null; alarm: string | null;
}

export interface Service { id: string; state: string; url: string | null; description: string; message: string | null }

export interface Group {
  group: string; kind: string; name: string; run: string | null; state: string; live: boolean;
  started: string | null; ended: string | null; host: string | null; pid: number | null; message: string | null;
  carbon: Energy | null; counts: Record<State, number>; total: number; known: number; eta_s: number | null;
  services: Service[]; take_up: string | null;
}

export interface Energy { co2_kg?: number; energy_kwh?: number; duration_s?: number; region?: string }
export interface About extends Stamp { version: string; workspace: string; kinds: string[]; read_only: boolean }
export interface Failure { reason: string; error: string; place: string; jobs: Job[]; total: number; targets: [key: string, attempt: number][] }
export interface Alarm { key: string; text: string }
export interface Token {
  name: string; capacity: number | null; held: number; free: number;
  holders: { pid: number; key: string | null }[];
  waiting: { key: string; amount: number; since: string | null }[];
}
export interface Overview extends Stamp {
  groups: Group[]; running: Job[]; failures: Failure[]; tokens: Token[]; alarms: Alarm[]; jobs_per_s: number;
}
export interface Groups extends Stamp { groups: Group[]; total: number; offset: number }
export interface Jobs extends Stamp {
  group: string | null; total: number; known: number; matched: number; offset: number; jobs: Job[];
}
export interface Attempt {
  attempt: number; started: string | null; ended: string | null; state: State; reason: string | null;
  message: string | null; exit_code: number | null; signal: number | null; host: string | null; pid: number | null;
  launcher: string | null; usage: Record<string, number>;
}
export interface JobDetail extends Job, Stamp {
  directory: string | null; parameters: Record<string, unknown>; upstream: Record<string, string>;
  dependencies: Job[]; dependents: Job[]; runs: string[]; attempts: Attempt[]; most_attempts: number | null;
  events: Record<string, unknown>[]; result: unknown; earlier_logs: number; provenance: Record<string, unknown>; carbon: Energy | null;
  commands: string[]; lineage: { key: string; objective: number | null; diff: string }[];
}
export interface Why {
  key: string; because: string[]; reuse: string; code: string[]; next: string[];
  nearest: { task: string; id: string; changed: { parameter: string; here: unknown; there: unknown }[] } | null;
}
export interface LogPart {
  key: string; stream: string; attempt: number; offset: number; next: number; text: string; whole: boolean;
  ended: boolean;
}
export interface GraphNode {
  id: string; label: string; task: string; total: number; counts: Record<State, number>; layer: number; order: number;
}
export interface Graph extends Stamp {
  nodes: GraphNode[]; edges: { from: string; to: string; count: number }[]; collapsed: boolean;
}
export type Bar = [line: number, start: number, end: number, state: State, key: string, attempt: number];
export type Wait = [line: number, from: number, to: number, reason: string, key: string];
export type Bin = [from: number, to: number, counts: Record<State, number>];
export type Join = [line: number, end: number, nextLine: number, start: number, key: string];
export interface Lane { group: string; label: string; lines: number; bars: Bar[]; waits: Wait[]; joins: Join[]; bins: Bin[] }
export interface TokenLane extends Token { steps: [from: number, to: number, held: number][] }
export interface Timeline extends Stamp { from: number; to: number; lanes: Lane[]; tokens: TokenLane[] }
export interface History extends Stamp { at: string[]; counts: Record<State, number[]> }
export interface Column { name: string; kind: string; min: number | null; max: number | null; less?: boolean }
export type Cell = string | number | boolean | null;
export interface Results extends Stamp { columns: Column[]; rows: Record<string, Cell>[]; total: number; offset: number; importance: Record<string, number> }
export interface Curve {
  name: string; steps: number[]; times: (number | null)[]; values: (number | null)[]; total: number;
  last: number | null; min: number | null; max: number | null; packed?: Packed;
}
export interface Packed { steps: number[]; even: boolean; values: string; bits: number; times: string | null; newest: number | null }
export interface JobCurves {
  key: string; id: string; name: string; task: string; state: State; tags: Record<string, string>; where: string; names: string[]; curves: Curve[];
}
export interface Metrics extends Stamp { names: string[]; jobs: JobCurves[]; total: number }
export interface Queue extends Stamp { services: Record<string, Cell>[]; users: Record<string, Cell>[] }
export interface Nodes extends Stamp { nodes: Record<string, Cell | string[]>[] }
export interface Axis { name: string; low: number; high: number; cells: number }
export interface Archive extends Stamp {
  group: string; axes: Axis[]; cells: (number | string | null)[][]; in_flight: (number | string)[][];
  filled: number; total: number; best: number | null; qd_score: number | null;
  history: [at: string, filled: number, best: number | null][];
}
export interface Carbon extends Stamp {
  groups: (Energy & { group: string; measured: number; of: number })[];
  tasks: (Energy & { task: string; jobs: number })[];
}
export interface Cleanup extends Stamp {
  unowned: Job[]; orphans: { jobs: number; bytes: number }; alarms: Alarm[]; bad_lines: number;
}
export interface Outcome { key: string; outcome: string; detail: string; attempt: number }
export interface Delta extends Stamp { jobs: Job[]; gone: { group: string; key: string }[]; groups: Group[]; many?: string[] }

/** What a view is given: where it draws, what the address asks for, and what is watched. */
export interface Place {
  main: HTMLElement; query: URLSearchParams; about: About;
  /** Says what is wrong with the search, and at which character. */
  trouble: (words: string, position?: number) => void;
}

/** What a view gives back; each part is optional. */
export interface View {
  /** What the window is called; else the name of the view. */
  title?: string;
  delta?: (delta: Delta) => void;
  reset?: () => void;
  log?: (part: LogPart) => void;
  /** These jobs logged more metrics. */
  metrics?: (keys: string[]) => void;
  tick?: () => void;
  /** A key that no field took; true if it was of use. */
  press?: (key: string) => boolean;
  close?: () => void;
}

export type Child = Node | string | number | null | undefined | false | Child[];
