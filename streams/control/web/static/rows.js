// Rows and cards of what is shown.
import { brief, clock, few, holding, percent, whole } from "./format.js";
import { band, bars, command, node, spark } from "./drawing.js";
import { BESIDE, CANDIDATE, FEW_HAVE, HOST, LIMITS, MODEL, OUT, PARTS, PLACE, SHAPES, STEP, TEXTS, TILES, TIMES, VERSION, belongs, between, beyond, named } from "./words.js";

export const shown = (value, write) => value === null || value === undefined ? "–" : write(value);
export const tone = (key, value) => key in LIMITS && value >= LIMITS[key] ? "is-bad" : "";

// A table with a caption; in a narrow window each row is a card, so cells bring their heads' names, and roles are said.
export function table(caption, columns, rows, rowClass = () => "") {
  const made = node("table", node("caption", caption)), head = made.createTHead(), line = head.insertRow(), body = made.createTBody();
  made.setAttribute("role", "table"); [head, body].forEach(part => part.setAttribute("role", "rowgroup")); line.setAttribute("role", "row");
  for (const [key, name, unit, , meaning] of columns) {
    const cell = node("th", [name, node("small", unit)], TEXTS.includes(key) ? "text" : ""); cell.scope = "col"; cell.title = meaning ?? "";
    cell.setAttribute("role", "columnheader"); line.append(cell);
  }
  for (const row of rows) {
    const own = body.insertRow(); own.className = rowClass(row); own.setAttribute("role", "row");
    for (const [at, [key, name, unit, write]] of columns.entries()) {
      const cell = node(at ? "td" : "th", shown(row[key], write), `${TEXTS.includes(key) ? "text" : ""} ${SHAPES[key] ?? ""} ${tone(key, row[key])}`);
      cell.setAttribute("role", at ? "cell" : "rowheader"); if (!at) cell.scope = "row";
      cell.dataset.label = unit ? `${name}, ${unit}` : name; own.append(cell);
    }
  }
  return made;
}
export function tile(row, [key, name, write, series]) {
  const parts = [node("b", shown(row[key], write), tone(key, row[key])), node("small", name)];
  const [beside, called, written] = BESIDE[key] ?? [];
  if (beside && (key !== "loss" || row[beside] !== null)) parts.push(node("small", `${shown(row[beside], written)} ${called}`, tone(beside, row[beside])));
  if (series) parts.push(spark(row[series], key === "defaults" ? Math.max(.1, ...row[series]) : undefined, row.marks));
  const reasons = { defaults: row.reasons, in_time: row.partials }[key] ?? {};
  Object.entries(reasons).filter(([, part]) => part > 0).sort((a, b) => b[1] - a[1]).slice(0, 4).forEach(([reason, part]) =>
    parts.push(node("small", `${percent(part)} ${key === "in_time" ? "partial, " : ""}${reason.replaceAll("_", " ")}`)));
  return node("div", parts, "tile");
}
export const isBroken = row => row.held !== null && row.at_most < row.promised;
export function promise(row) {
  return node("div", [node("b", shown(row.held, percent), isBroken(row) ? "is-bad" : ""), node("small", `of ${whole(row.judged)} ${row.of} held the true ${row.truth}, in 5 minutes; promised ${percent(row.promised)}`),
    spark(row.series, 1), node("small", `${shown(row.size, few)} ${row.unit}`), ...(row.all ? [node("small", `${percent(row.all)} hold any ${row.truth}: too little is known`)] : [])], "tile");
}
export const looked = source => `${source.name} (${source.imputed === null ? "nobody asked in the last minute" : `${percent(source.imputed)} imputed in the last minute`})`;
export function application(row) {
  const latency = row.p50_ms === null ? null : `${few(row.p50_ms)} / ${few(row.p99_ms)}`;
  const title = node("h3", [row.name, " ", node("small", row.policy ? `policy ${row.policy}` : "not deployed")]);
  const tiles = TILES.map(each => tile({ ...row, latency }, each));
  if (row.serving) tiles.push(node("div", [node("b", row.serving.loss.toFixed(3)), node("small", `mean loss of ${whole(row.serving.answers)} answers since ${clock(row.serving.since_us)}`),
    band(row.serving.course), node("small", `at all times within ${row.serving.lower.toFixed(3)} and ${row.serving.upper.toFixed(3)}`)], "tile"));
  if (row.times) tiles.push(node("div", [node("b", row.times.objective_ms === null ? "–" : `${few(row.times.objective_ms)}`), node("small", "ms is the objective; answers of the last minute by how long they took"), bars(row.times, brief)], "tile"));
  if (row.coverage) tiles.push(promise(row.coverage));
  const versions = row.models.flatMap(model => model.versions.map(version => ({ ...version, name: model.name })));
  const priced = MODEL.filter(([key]) => key !== "cost" || row.models.some(FEW_HAVE.cost));
  const tables = [[`Models of ${row.name}`, priced, row.models.map(model => ({ ...model, batch: `${shown(model.batch_rows, few)} of ${shown(model.batch_cap, whole)}` }))], [`Versions of ${row.name}`, VERSION, versions]].filter(([, , rows]) => rows.length).map(each => table(...each));
  const notes = [
    ...row.holds.filter(each => each.value).map(each => `${holding(each)} in hand`.replace(/^held /, "")),
    ...(row.sources.length ? [`features are looked up in ${row.sources.map(looked).join(", ")}`] : []),
    ...Object.entries(row.again).map(([what, share]) => `${percent(share)} ${what} in the last minute`),
    ...Object.entries(row.turned_away).map(([what, count]) => `${whole(count)} ${what} turned away in the last minute: it has its share`),
    ...(row.left ? [`by Python, not by columns: ${row.left}`] : row.by_columns ? [`${percent(row.by_columns)} by columns`] : []),
    ...(row.without_state ? [`${percent(row.without_state)} decided before their policy's state was read`] : [])];
  const made = node("section", [title, ...notes.map(note => node("div", note, "dim")), node("div", tiles, "tiles"), ...tables], "card"); made.ariaLabel = `application ${row.name}`; return made;
}
// Nobody has asked for five minutes. Such applications are one line, until it is opened.
export const isIdle = row => row.rates.every(rate => !rate);
export let isUnfolded = false;
export function folded(title, made) {
  const details = node("details", [node("summary", title)]); details.open = isUnfolded;
  if (isUnfolded) details.append(...made());
  details.ontoggle = () => { if (details.open && !isUnfolded) details.append(...made()); isUnfolded = details.open; };
  return details;
}
// Steps with where they lie on the charts: 0 = five minutes ago, 1 = now.
export const marked = (steps, now_us) => steps.map(step => ({ ...step, bounds: between(step), when: clock(step.time_us), part: 1 - (now_us - step.time_us) / 3e8 }));
export const concerns = row => step => step.kind === "policy" ? step.name === row.name : row.models.some(model => model.name === step.name);
export function promotions(view, steps) {
  const tables = [["Candidates under way", CANDIDATE, view.candidates.map(row => ({ ...row, who: [...named(row), belongs(row, row.incumbent)], bounds: [between(row), band(row.course, true), ...(row.metrics ?? []).map(beyond)] }))],
    ["Last steps", STEP, steps.map(row => ({ ...row, who: [...named(row), belongs(row)], action: [row.action, node("small", `${percent(row.share)} of queries`)] }))]].filter(([, , rows]) => rows.length);
  const parts = tables.map(each => table(...each));
  if (view.forgotten) parts.push(node("div", `${whole(view.forgotten)} ids of observations had to be forgotten before their time (control.ids_mib): a copy of one counts twice`, "dim"));
  return parts.length ? [node("h2", "Promotion on evidence"), node("div", parts, "card")] : [];
}
export const listed = (names, most) => names.slice(0, most).join(", ") + (names.length > most ? `, and ${whole(names.length - most)} more` : "");
export const unasked = places => { const names = places.filter(place => !place.per_s).map(place => place.model); return names.length ? [`nobody asks: ${listed(names, 12)}`] : []; };
export function planned(row) {
  const hosts = Object.entries(Object.groupBy(row.places, place => place.host)).map(([instance, places]) => ({ instance,
    placed: [...places.filter(place => place.per_s).map(place => `${place.model}: ${few(place.per_s)}/s, ${place.rows} ${place.duty_ms ? `every ${few(place.duty_ms)} ms` : "as often as it can"}`), ...unasked(places)].map(each => node("small", each)),
    per_s: places.reduce((sum, place) => sum + place.per_s, 0) }));
  const said = [`planned at ${clock(row.time_us)}: ${row.why}`, `as it is since ${clock(row.changed_us)}`, ...row.reasons];
  return node("section", [node("h3", [row.pool, " ", node("small", `${row.needed} of ${row.hosts} hosts are needed`)]), ...said.map(each => node("div", each, "dim")), table(`Hosts of ${row.pool}`, PLACE, hosts)], "card");
}
export function held(row) {
  const said = [`in memory: ${listed(row.models, 60) || "none"}`, ...(row.evicted ? [`unloaded last: ${row.evicted}`] : [])];
  const tiles = HOST.map(([key, name, write]) => node("div", [node("b", write(row[key], row), key === "ends" && row.ends ? "is-warn" : ""), node("small", name)], "tile"));
  return node("section", [node("h3", [row.pool, " ", node("small", row.instance)]), node("div", tiles, "tiles"), ...said.map(each => node("div", each, "dim")), ...(row.out.length ? [table("Taken out", OUT, row.out)] : []), ...timed(row.times)], "card");
}
export function timed(rows, most = 20) {
  const sizes = row => Object.entries(row.sizes).map(([rows, ms]) => `${rows}: ${brief(ms)}`).join(", ") || null;
  const rest = rows.length > most ? [node("div", `and ${whole(rows.length - most)} more with fewer batches: skysail model show NAME`, "dim")] : [];
  return rows.length ? [table("Times of batches", TIMES, rows.slice(0, most).map(row => ({ ...row, p99s: sizes(row) }))), ...rest] : [];
}
export function links() {
  const there = Object.entries(PARTS).filter(([id]) => document.getElementById(id)?.childElementCount);
  return there.map(([id, name]) => { const made = node("a", name); made.href = `#${id}`; made.dataset.key = `to ${id}`; return made; });
}
export function alert(found, ...more) { return node("div", [node("span", found.text), ...(found.command ? [command(found.command)] : []), ...more], `alert ${found.level}`); }
export function summary(view) {
  if (!view.processes.some(process => process.role !== "control")) return { level: "warn", text: "nothing has reported yet", command: "skysail doctor" };
  const rate = view.applications.reduce((sum, row) => sum + row.rate, 0);
  const defaults = view.applications.reduce((sum, row) => sum + row.rate * (row.defaults ?? 0), 0);
  const some = defaults ? `, ${percent(defaults / rate)} of them the default` : "";
  return { level: "well", text: `Nothing is wrong: ${view.processes.length} processes report, ${few(rate)} answers a second${some}.` };
}
