// Charts of the last minutes to a day, by uPlot: lines told apart by colour and dashes, marks where something was done.
import { node } from "./drawing.js";
import { clock, few, fixed, percent, whole } from "./format.js";

/* global uPlot */
const place = id => document.getElementById(id);
const SPANS = [["5 min", 5], ["1 h", 60], ["6 h", 360], ["24 h", 1440]];
const PROCESSES = "processes";
const COLOURS = ["--line1", "--line2", "--line3", "--line4", "--line5", "--line6"], DASHES = [[], [6, 3], [2, 2]];
const ROOM = { share: [0, 1], weight: [0, 1] };
// Title, how values are written, and which figures: a name of an application's, or of its models (`model_`).
const OF_APPLICATION = [
  ["Answers a second", few, ["rate", "joined"]], ["Time to answer, ms", few, ["p50_ms", "p99_ms"]], ["Default, late: share of answers", percent, ["defaults", "late"]],
  ["Mean loss", fixed(3), ["loss", "model_loss"]], ["Weights in the policy", percent, ["model_weight"]], ["Share of questions", percent, ["model_share"]],
  ["Models' time, 99 % within, ms", few, ["model_p99_ms"]], ["Rows that wait for models", whole, ["model_queue_rows"]]];
const OF_PROCESSES = [["Unread records", whole, ["lag"]], ["CPU, of a core", percent, ["cpu"]], ["Memory, MB", whole, ["memory_mb"]]];
const NAMES = { rate: "answers", joined: "feedback joined", p50_ms: "half within", p99_ms: "99 % within", defaults: "default", late: "late", loss: "of the answers" };

let span = 5, subject = null, drawn = "", plots = [];
const parsed = full => { const [, name, labels] = full.match(/^([^{]+)\{(.*)\}$/s); return { name, labels: Object.fromEntries(labels.split(",").map(each => each.split("="))) }; };
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function begin(again) {
  for (const [name, minutes] of SPANS) {
    const input = node("input"); Object.assign(input, { type: "radio", name: "span", value: minutes, checked: minutes === span });
    input.onchange = () => { span = minutes; again(); };
    place("spans").append(node("label", [input, ` ${name}`]));
  }
  place("subject").onchange = event => { subject = event.target.value; again(); };
  matchMedia("(prefers-color-scheme: dark)").onchange = again;
  new ResizeObserver(() => plots.forEach(each => each.setSize({ width: width(), height: 150 }))).observe(place("charts"));
}
const width = () => Math.max(260, Math.min(560, (place("charts").clientWidth - 16) / (place("charts").clientWidth > 900 ? 2 : 1) - 24));

export function choose(names) {
  const wanted = [...names, PROCESSES];
  if (subject === null || !wanted.includes(subject)) subject = wanted[0];
  const select = place("subject");
  if ([...select.options].map(each => each.value).join() !== wanted.join()) select.replaceChildren(...wanted.map(name => new Option(name === PROCESSES ? "processes" : `application ${name}`, name)));
  select.value = subject;
}

// The last five minutes come with the status, in steps of five seconds; what is longer is asked for, at most every half minute.
export async function refresh(status) {
  const view = status.overview, newest = Math.floor(status.time_us / 5e6) * 5;
  const now = span === 5 ? newest : Math.floor(newest / 30), wish = JSON.stringify([span, subject, now, matchMedia("(prefers-color-scheme: dark)").matches]);
  if (wish === drawn) return;
  const found = span === 5 ? lately(view, newest) : await (await fetch(`/api/charts?${new URLSearchParams({ minutes: span, ...(subject === PROCESSES ? {} : { application: subject }) })}`)).json();
  drawn = wish;
  const steps = view.steps.map(step => ({ time_us: step.time_us, kind: step.action, text: `${step.name} ${step.candidate}: ${step.action}, ${percent(step.share)}` }));
  draw(found, [...(found.marks ?? []), ...steps].filter(mark => mark.time_us / 1e6 >= (found.times[0] ?? Infinity)));
}
function lately(view, newest) {
  const columns = {}, put = (name, label, series) => { columns[`${name}{${label}}`] = series; };
  const row = view.applications.find(each => each.name === subject);
  if (row) {
    put("rate", "a=", row.rates); put("defaults", "a=", row.default_shares); put("loss", "a=", row.losses);
    row.models.forEach(model => put("model_share", `model=${model.name}`, model.shares));
  } else if (subject === PROCESSES) view.processes.forEach(process => put("lag", `process=${process.instance}`, process.lags.slice(-60)));
  const length = Math.max(0, ...Object.values(columns).map(series => series.length));
  return { times: Array.from({ length }, (_, at) => newest - (length - at) * 5), columns, marks: view.marks };
}

function draw(found, marks) {
  plots.forEach(each => each.destroy()); plots = [];
  const lines = Object.entries(found.columns).map(([full, values]) => ({ ...parsed(full), values })).filter(each => each.values.some(value => value !== null));
  const figures = (subject === PROCESSES ? OF_PROCESSES : OF_APPLICATION).map(([title, write, names]) => [title, write, lines.filter(each => names.includes(each.name))]).filter(([, , its]) => its.length);
  place("charts").replaceChildren(...(figures.length ? [] : [node("p", span === 5 ? "nothing was asked in the last five minutes" : "nothing is known of that time yet: the first minute that ends is the first point", "dim")]));
  for (const [title, write, its] of figures) place("charts").append(chart(title, write, its.slice(0, 12), found.times, marks));
}
function chart(title, write, lines, times, marks) {
  const named = lines.map(each => each.labels.model ?? each.labels.process ?? NAMES[each.name] ?? each.name);
  const box = node("div"), last = values => values.findLast(value => value !== null);
  const said = lines.map((each, at) => `${named[at]}: ${write(last(each.values))} now, ${write(Math.min(...each.values.filter(value => value !== null)))} to ${write(Math.max(...each.values.filter(value => value !== null)))}`);
  const made = node("figure", [node("figcaption", title), box, node("p", said.join("; "), "hidden"), ...(marks.length ? [marked(marks)] : [])]);
  box.setAttribute("aria-hidden", "true"); // the sentence says what the drawing shows
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const series = lines.map((each, at) => ({ label: named[at], stroke: colour(COLOURS[at % COLOURS.length]), dash: DASHES[Math.floor(at / COLOURS.length) % 3], width: 1.5, points: { show: each.values.filter(value => value !== null).length < 3 }, value: (_, value) => value === null ? "–" : write(value) }));
  plots.push(new uPlot({
    width: width(), height: 150, series: [{ value: (_, at) => at === null ? "" : clock(at * 1e6) }, ...series], cursor: { drag: { x: false, y: false } }, legend: { live: true },
    scales: { y: { range: (_, low, high) => write === percent ? [0, Math.max(high ?? 0, .05) * 1.05] : [Math.min(0, low ?? 0), (high || 1) * 1.08] } },
    axes: [{ ...axis, space: 70, values: (_, all) => all.map(at => clock(at * 1e6).slice(0, span > 5 ? 5 : 8)) }, { ...axis, size: 52, values: (_, all) => all.map(write) }],
    hooks: { draw: [plot => line(plot, marks)] },
  }, [times, ...lines.map(each => each.values)], box));
  return made;
}
function line(plot, marks) {
  plot.ctx.save(); plot.ctx.setLineDash([3, 3]);
  for (const mark of marks) {
    plot.ctx.strokeStyle = colour(["restart", "back"].includes(mark.kind) ? "--bad" : "--dim");
    const x = Math.round(plot.valToPos(mark.time_us / 1e6, "x", true)); if (x < plot.bbox.left) continue;
    plot.ctx.beginPath(); plot.ctx.moveTo(x, plot.bbox.top); plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height); plot.ctx.stroke();
  }
  plot.ctx.restore();
}
function marked(marks) {
  const shown = marks.toSorted((a, b) => b.time_us - a.time_us).slice(0, 30);
  return node("details", [node("summary", `${marks.length} marks: ${shown[0].text}`), node("ul", shown.map(mark => node("li", `${clock(mark.time_us)} ${mark.text}`)))]);
}
