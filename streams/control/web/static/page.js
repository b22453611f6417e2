const fixed = digits => value => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative" }); // 0, never -0
const few = value => fixed(value && Math.abs(value) < 10 ? 1 : 0)(value), whole = fixed(0), text = value => value;
const brief = value => fixed(value < 10 ? 2 : value < 100 ? 1 : 0)(value);
const percent = value => `${(100 * value).toFixed(value && value < .1 ? 1 : 0)}\u00a0%`;
const span = s => s < 60 ? `${whole(s)} s` : s < 3600 ? `${whole(s / 60)} min` : s < 86400 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} d`;
const amount = (value, name) => name.endsWith("_bytes") || name.endsWith(" bytes") ? `${few(value / 1e6)} MB` : whole(value);
const holding = ({ name, value, limit }) => `${name.replaceAll("_", " ").replace(/ bytes$/, "")} ${amount(value, name)}${limit === null ? "" : ` of ${amount(limit, name)}`}`;
const holdings = list => list.filter(each => each.value).map(holding).join(", ") || "–";
const share = series => spark(series, 1), lag = series => spark(series, Math.max(100, ...series)); // a few records are no lag

// What a figure is called, its unit, how it is written, and what it means: the one place for it.
const MODEL = [
  ["name", "Model", "", text], ["version", "Version", "", text],
  ["share", "Share", "of model calls", percent, "share of the model calls of this application that went to it"],
  ["shares", "Share", "last 5 min", share], ["weight", "Weight", "in the policy", percent, "of the policy's global state; users (contexts) may have others"],
  ["loss", "Mean loss", "last minute", fixed(3), "where it was asked and feedback came"],
  ["failed", "Failed", "of inputs", percent, "of this application's questions to it: it raised"],
  ["invalid", "Refused", "of inputs", percent, "of this application's questions to it: it does not take such an input"],
  ["batch_rows", "Batch", "rows", few], ["batch_cap", "Batch cap", "rows", whole], ["queue_rows", "Queue", "rows", whole],
  ["p50_ms", "Median", "ms, last minute", few, "from being fetched by the worker to being predicted"], ["p99_ms", "99 % within", "ms, last minute", few, "p99"]];
const VERSION = [
  ["name", "Model", "", text], ["version", "Version", "", text], ["label", "Label", "", text],
  ["share", "Answers", "of its queries", percent, "a shadow sees every query and answers none"],
  ["loss", "Mean loss", "last minute", fixed(3), "where feedback came: of its own answers, a shadow's too"]];
const OF_ALL = "of the whole process: of roles that share one, the first tells it";
const PROCESS = [
  ["instance", "Process", "", text], ["age_s", "Last heard", "ago", span], ["up_s", "Up for", "", span], ["restarts", "Restarts", "seen", whole],
  ["cpu", "CPU", "of a core", percent, OF_ALL], ["memory_mb", "Memory", "MB", whole, OF_ALL], ["lag", "Unread", "records", whole, "consumer lag"],
  ["lags", "Unread", "last 5 min", lag], ["holds", "Holds", "", holdings, "of what it keeps and that may grow"]];
const OFF = ["clock_off_ms", "Clock ahead", "ms", whole, "of its machine's: after a step backwards it follows slowly"];
const FEW_HAVE = { clock_off_ms: row => Math.abs(row.clock_off_ms) >= 1, holds: row => row.holds.some(each => each.value) }; // shown where somebody has it
const LETTER = [["topic", "Topic", "", text], ["cause", "Cause", "", text], ["minute", "Last minute", "records", whole],
  ["total", "Since the start", "of the process", whole], ["command", "See them with", "", command]];
const loss = fixed(3), between = row => `${loss(row.difference)} [${loss(row.lower)}, ${loss(row.upper)}]`;
const policy = name => name.split(/(?<=[,(])/).flatMap(part => [node("wbr"), part]); // a line may end after each parameter
const named = row => row.kind === "version" ? [`${row.name} ${row.candidate}`] : policy(row.candidate);
const belongs = (row, beside) => node("small", [...(row.kind === "version" ? [] : [`of ${row.name}`, ...(beside ? [", "] : [])]), ...(beside ? ["beside ", ...policy(beside)] : [])]);
const CANDIDATE = [
  ["who", "Candidate", "", text], ["share", "Answers", "of queries", percent], ["pairs", "Comparisons", "", whole],
  ["bounds", "Better by", "mean loss, bounds", text, "the bounds hold however often one looks; below: over time, dashed at 0"], ["cost", "Has cost", "errors", few, "beyond those of what it is compared with"], ["reason", "Stays, as", "", text]];
const STEP = [
  ["when", "Time", "", text], ["who", "Candidate", "", text], ["action", "Step", "and answers", text],
  ["pairs", "Comparisons", "", whole], ["bounds", "Better by", "mean loss, bounds", text], ["reason", "Because", "", text]];
const PLACE = [
  ["instance", "Host", "", text], ["placed", "Models", "rows a second, rows a batch, how often", text], ["per_s", "Asked", "a second", few]];
const HOST = [
  ["resident", "models in memory", (value, row) => `${whole(value)} of ${whole(row.known)}`],
  ["bytes", "MB in memory", (value, row) => `${few(value / 1e6)} of ${few(row.budget_bytes / 1e6)}`],
  ["loads", "times loaded", whole], ["evictions", "times unloaded for another one", whole],
  ["refused", "rows refused: not in time", whole], ["ends", "ends of the models' process", whole],
  ["longer", "of batches took longer than predicted", (value, row) => shown(value, percent)], ["shorter", "of batches took less", (value, row) => shown(value, percent)]];
const TIMES = [
  ["name", "Model", "", text], ["p99s", "99 % within", "ms, by rows of a batch", text, "longest of the last ten of a size: so long a batch is predicted to take; kept over restarts"],
  ["load_ms", "Loading", "ms", brief, "longest of the last ten"], ["batches", "Batches", "predicted", whole],
  ["predicted_ms", "Predicted", "ms, mean", brief], ["actual_ms", "Actual", "ms, mean", brief],
  ["longer", "Took longer", "than predicted", percent], ["shorter", "Took less", "than predicted", percent]];
const OUT = [["name", "Model", "", text], ["version", "Version", "", text], ["times", "Taken out", "times in a row", whole], ["reason", "Because", "", text]];
const TILES = [
  ["rate", "answers a second", few, "rates"], ["in_time", "answered by a model in time", percent],
  ["defaults", "default answers", percent, "default_shares"], ["latency", "ms to answer, last minute: half within / 99 % within", text],
  ["loss", "mean loss, last minute", fixed(3), "losses"]];
// What a tile says in small letters below its figure: the same subject, seen from another side.
const BESIDE = { rate: ["joined", "feedback joined a second", few], latency: ["late", "after the deadline", percent] };
const SHAPES = { reason: "prose", who: "long", p99s: "prose", placed: "prose" };
// Below the applications, of which there may be many: links to what is there.
const PARTS = { promotions: "Promotion on evidence", plans: "Hosts by plan", hosts: "Models of hosts", processes: "Processes", letters: "Dead letters" };
const LIMITS = { defaults: .05, late: .05, failed: .05, invalid: .05, restarts: 1 }, TEXTS = ["name", "version", "label", "instance", "topic", "cause", "command", "holds", "who", "when", "action", "reason", "p99s", "placed"];

function node(tag, content, className = "") {
  const made = document.createElement(tag); made.className = className;
  made.append(...(Array.isArray(content) ? content : [content ?? ""])); return made;
}
function command(line) {
  const made = node("code", line); made.title = "click to copy"; made.onclick = () => navigator.clipboard?.writeText(line); return made;
}
function drawing(tag, attributes, content = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag); made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
// A plot of a few minutes; gaps where nothing is known. `top`: what the full height means, else the largest value. `marks`: steps of candidates.
function spark(series, top = Math.max(...series.filter(value => value !== null), 1e-9), marks = [], width = 120, height = 24) {
  const svg = drawing("svg", { width, height, role: "img" }), runs = [[]];
  series.forEach((value, at) => value === null ? runs.push([]) :
    runs.at(-1).push([at * width / (series.length - 1 || 1), height - 1 - Math.min(value / top, 1) * (height - 3)]));
  runs.filter(run => run.length > 1).forEach(run => {
    const points = run.map(point => point.map(part => part.toFixed(1)).join(",")).join(" ");
    svg.append(drawing("polygon", { points: `${run[0][0]},${height} ${points} ${run.at(-1)[0]},${height}` }), drawing("polyline", { points }));
  });
  marks.filter(mark => mark.part > 0).forEach(mark => {
    const at = (mark.part * width).toFixed(1), line = drawing("line", { class: `mark ${mark.action}`, x1: at, x2: at, y1: 0, y2: height });
    line.append(drawing("title", {}, `${mark.when} ${mark.name} ${mark.candidate}: ${mark.action}, ${percent(mark.share)}`)); svg.append(line);
  });
  const known = series.filter(value => value !== null);
  svg.append(drawing("title", {}, known.length ? `last 5 minutes, 5 s a point: ${Math.min(...known)} to ${Math.max(...known)}` : "nothing known yet")); return svg;
}
const clock = time_us => new Date(time_us / 1000).toLocaleTimeString("en-GB"); // 24 hours
// A mean with its bounds over time. The first quarter may lie outside: little is known then, and the bounds are far apart.
// `signed`: a difference, with a line at 0.
function band(course, signed = false, width = 120, height = 36) {
  const svg = drawing("svg", { width, height, role: "img" }), last = course.at(-1), late = course.slice(Math.floor(course.length / 4));
  const top = Math.max(...late.map(each => each[3]), signed ? 0 : -1), bottom = Math.min(...late.map(each => each[2]), signed ? 0 : 1);
  const x = time_us => width * (time_us - course[0][0]) / (last[0] - course[0][0] || 1), y = value => Math.max(1, Math.min(height - 1, 1 + (height - 2) * (top - value) / (top - bottom || 1)));
  const line = (points, column) => points.map(each => `${x(each[0]).toFixed(1)},${y(each[column]).toFixed(1)}`).join(" ");
  if (course.length > 1) svg.append(drawing("polygon", { points: `${line(course, 3)} ${line(course.toReversed(), 2)}` }), drawing("polyline", { points: line(course, 1) }));
  if (signed && course.length) svg.append(drawing("line", { class: "zero", x1: 0, x2: width, y1: y(0), y2: y(0) }));
  svg.append(drawing("title", {}, course.length ? `since ${clock(course[0][0])}; ${bottom.toFixed(3)} to ${top.toFixed(3)}` : "nothing known yet")); return svg;
}
const shown = (value, write) => value === null || value === undefined ? "–" : write(value);
const tone = (key, value) => key in LIMITS && value >= LIMITS[key] ? "is-bad" : "";

function table(columns, rows, rowClass = () => "") {
  const made = node("table"), head = made.createTHead().insertRow(), body = made.createTBody();
  for (const [key, name, unit, , meaning] of columns) {
    const cell = node("th", [name, node("small", unit)], TEXTS.includes(key) ? "text" : ""); cell.title = meaning ?? ""; head.append(cell);
  }
  for (const row of rows) {
    const line = body.insertRow(); line.className = rowClass(row);
    for (const [key, , , write] of columns)
      line.append(node("td", shown(row[key], write), `${TEXTS.includes(key) ? "text" : ""} ${SHAPES[key] ?? ""} ${tone(key, row[key])}`));
  }
  return made;
}
function tile(row, [key, name, write, series]) {
  const parts = [node("b", shown(row[key], write), tone(key, row[key])), node("small", name)];
  const [beside, called, written] = BESIDE[key] ?? [];
  if (beside) parts.push(node("small", `${shown(row[beside], written)} ${called}`, tone(beside, row[beside])));
  if (series) parts.push(spark(row[series], key === "defaults" ? Math.max(.1, ...row[series]) : undefined, row.marks));
  const reasons = { defaults: row.reasons, in_time: row.partials }[key] ?? {};
  Object.entries(reasons).filter(([, part]) => part > 0).sort((a, b) => b[1] - a[1]).slice(0, 4).forEach(([reason, part]) =>
    parts.push(node("small", `${percent(part)} ${key === "in_time" ? "partial, " : ""}${reason.replaceAll("_", " ")}`)));
  return node("div", parts, "tile");
}
const isBroken = row => row.held !== null && row.at_most < row.promised;
function promise(row) {
  return node("div", [node("b", shown(row.held, percent), isBroken(row) ? "is-bad" : ""), node("small", `of ${whole(row.judged)} sets held the true label, in 5 minutes; promised ${percent(row.promised)}`),
    spark(row.series, 1), node("small", `${shown(row.size, few)} labels a set`), ...(row.all ? [node("small", `${percent(row.all)} hold any label: too little is known`)] : [])], "tile");
}
const looked = source => `${source.name} (${source.imputed === null ? "nobody asked in the last minute" : `${percent(source.imputed)} imputed in the last minute`})`;
function application(row) {
  const latency = row.p50_ms === null ? null : `${few(row.p50_ms)} / ${few(row.p99_ms)}`;
  const title = node("h3", [row.name, " ", node("small", row.policy ? `policy ${row.policy}` : "not deployed")]);
  const tiles = TILES.map(each => tile({ ...row, latency }, each));
  if (row.serving) tiles.push(node("div", [node("b", row.serving.loss.toFixed(3)), node("small", `mean loss of ${whole(row.serving.answers)} answers since ${clock(row.serving.since_us)}`),
    band(row.serving.course), node("small", `at all times within ${row.serving.lower.toFixed(3)} and ${row.serving.upper.toFixed(3)}`)], "tile"));
  if (row.coverage) tiles.push(promise(row.coverage));
  const versions = row.models.flatMap(model => model.versions.map(version => ({ ...version, name: model.name })));
  const tables = [[MODEL, row.models], [VERSION, versions]].filter(([, rows]) => rows.length).map(each => table(...each));
  const notes = [
    ...row.holds.filter(each => each.value).map(each => `${holding(each)} in hand`.replace(/^held /, "")),
    ...(row.sources.length ? [`features are looked up in ${row.sources.map(looked).join(", ")}`] : []),
    ...Object.entries(row.again).map(([what, share]) => `${percent(share)} ${what} in the last minute`),
    ...Object.entries(row.turned_away).map(([what, count]) => `${whole(count)} ${what} turned away in the last minute: it has its share`),
    ...(row.left ? [`by Python, not by columns: ${row.left}`] : row.by_columns ? [`${percent(row.by_columns)} by columns`] : []),
    ...(row.without_state ? [`${percent(row.without_state)} decided before their policy's state was read`] : [])];
  return node("section", [title, ...notes.map(note => node("div", note, "dim")), node("div", tiles, "tiles"), ...tables], "card");
}
// Nobody has asked for five minutes. Such applications are one line, until it is opened.
const isIdle = row => row.rates.every(rate => !rate);
let isUnfolded = false;
function folded(title, made) {
  const details = node("details", [node("summary", title)]); details.open = isUnfolded;
  if (isUnfolded) details.append(...made());
  details.ontoggle = () => { if (details.open && !isUnfolded) details.append(...made()); isUnfolded = details.open; };
  return details;
}
// Steps with where they lie on the charts: 0 = five minutes ago, 1 = now.
const marked = (steps, now_us) => steps.map(step => ({ ...step, bounds: between(step), when: clock(step.time_us), part: 1 - (now_us - step.time_us) / 3e8 }));
const concerns = row => step => step.kind === "policy" ? step.name === row.name : row.models.some(model => model.name === step.name);
function promotions(view, steps) {
  const tables = [[CANDIDATE, view.candidates.map(row => ({ ...row, who: [...named(row), belongs(row, row.incumbent)], bounds: [between(row), band(row.course, true)] }))],
    [STEP, steps.map(row => ({ ...row, who: [...named(row), belongs(row)], action: [row.action, node("small", `${percent(row.share)} of queries`)] }))]].filter(([, rows]) => rows.length);
  const parts = tables.map(each => table(...each));
  if (view.forgotten) parts.push(node("div", `${whole(view.forgotten)} ids of observations had to be forgotten before their time (control.ids_mib): a copy of one counts twice`, "dim"));
  return parts.length ? [node("h2", "Promotion on evidence"), node("div", parts, "card")] : [];
}
const listed = (names, most) => names.slice(0, most).join(", ") + (names.length > most ? `, and ${whole(names.length - most)} more` : "");
const unasked = places => { const names = places.filter(place => !place.per_s).map(place => place.model); return names.length ? [`nobody asks: ${listed(names, 12)}`] : []; };
function planned(row) {
  const hosts = Object.entries(Object.groupBy(row.places, place => place.host)).map(([instance, places]) => ({ instance,
    placed: [...places.filter(place => place.per_s).map(place => `${place.model}: ${few(place.per_s)}/s, ${place.rows} ${place.duty_ms ? `every ${few(place.duty_ms)} ms` : "as often as it can"}`), ...unasked(places)].map(each => node("small", each)),
    per_s: places.reduce((sum, place) => sum + place.per_s, 0) }));
  const said = [`planned at ${clock(row.time_us)}: ${row.why}`, `as it is since ${clock(row.changed_us)}`, ...row.reasons];
  return node("section", [node("h3", [row.pool, " ", node("small", `${row.needed} of ${row.hosts} hosts are needed`)]), ...said.map(each => node("div", each, "dim")), table(PLACE, hosts)], "card");
}
function held(row) {
  const said = [`in memory: ${listed(row.models, 60) || "none"}`, ...(row.evicted ? [`unloaded last: ${row.evicted}`] : [])];
  const tiles = HOST.map(([key, name, write]) => node("div", [node("b", write(row[key], row), key === "ends" && row.ends ? "is-warn" : ""), node("small", name)], "tile"));
  return node("section", [node("h3", [row.pool, " ", node("small", row.instance)]), node("div", tiles, "tiles"), ...said.map(each => node("div", each, "dim")), ...(row.out.length ? [table(OUT, row.out)] : []), ...timed(row.times)], "card");
}
function timed(rows, most = 20) {
  const sizes = row => Object.entries(row.sizes).map(([rows, ms]) => `${rows}: ${brief(ms)}`).join(", ") || null;
  const rest = rows.length > most ? [node("div", `and ${whole(rows.length - most)} more with fewer batches: skysail model show NAME`, "dim")] : [];
  return rows.length ? [table(TIMES, rows.slice(0, most).map(row => ({ ...row, p99s: sizes(row) }))), ...rest] : [];
}
function links(applications) {
  const there = Object.entries(PARTS).filter(([id]) => document.getElementById(id).childElementCount);
  return applications.length > 3 ? there.map(([id, name]) => { const made = node("a", name); made.href = `#${id}`; return made; }) : [];
}
function alert(found) { return node("div", [node("span", found.text), ...(found.command ? [command(found.command)] : [])], `alert ${found.level}`); }
function summary(view) {
  if (!view.processes.some(process => process.role !== "control")) return { level: "warn", text: "nothing has reported yet", command: "skysail doctor" };
  const rate = view.applications.reduce((sum, row) => sum + row.rate, 0);
  const defaults = view.applications.reduce((sum, row) => sum + row.rate * (row.defaults ?? 0), 0);
  const some = defaults ? `, ${percent(defaults / rate)} of them the default` : "";
  return { level: "well", text: `Nothing is wrong: ${view.processes.length} processes report, ${few(rate)} answers a second${some}.` };
}
const put = (id, ...content) => document.getElementById(id).replaceChildren(...content);

function show(status) {
  const view = status.overview;
  put("alerts", ...(view.alerts.length ? view.alerts : [summary(view)]).map(alert));
  const steps = marked(view.steps, status.time_us);
  const cards = rows => rows.map(row => application({ ...row, serving: view.serving[row.name], marks: steps.filter(concerns(row)) }));
  const quiet = view.applications.filter(isIdle), idle = quiet.length > 1 ? quiet : [], busy = view.applications.filter(row => !idle.includes(row));
  put("applications", ...cards(busy), ...(idle.length ? [folded(`${idle.length} applications that nobody has asked for five minutes: ${listed(idle.map(row => row.name), 12)}`, () => cards(idle))] : []));
  put("promotions", ...promotions(view, steps));
  put("plans", ...(view.plans.length ? [node("h2", "Hosts by plan"), ...view.plans.map(planned)] : []));
  put("hosts", ...(view.hosts.length ? [node("h2", "Models of hosts"), ...view.hosts.map(held)] : []));
  const known = [...PROCESS, OFF].filter(([key]) => !FEW_HAVE[key] || view.processes.some(FEW_HAVE[key]));
  put("processes", table(known, view.processes, row => row.silent ? "silent" : ""));
  put("letters", view.dead_letters.length ? table(LETTER, view.dead_letters.map(row => ({ ...row, cause: row.cause.replaceAll("_", " ") }))) : node("span", "none", "dim"));
  const parts = links(view.applications), shown = document.getElementById("parts");
  if (shown.childElementCount !== parts.length) put("parts", ...parts); // a link stays while it is clicked
  if (document.getElementById("figures").open) put("all", JSON.stringify(status, (key, value) => key === "overview" ? undefined : value, 1));
  document.getElementById("known").className = view.stale_s === null ? "" : "stale";
  put("place", view.prefix, ...(view.kafka ? [` on Kafka at ${view.kafka}`] : []));
  document.title = `${view.alerts.length ? `(${view.alerts.length}) ` : ""}${view.prefix} · Skysail · ${view.kafka}`;
}
function light(level, meaning) { const dot = document.getElementById("state"); dot.className = `dot ${level}`; dot.ariaLabel = dot.title = meaning; }
const MEANING = { well: "nothing is wrong", warn: "something may go wrong", bad: "something is wrong" };
async function refresh() {
  const when = document.getElementById("when");
  try {
    const status = await (await fetch("/api/status")).json(), view = status.overview, stale = view.stale_s;
    if (getSelection().isCollapsed) show(status); // what is being marked to be copied stays
    const level = view.alerts.length ? view.level : summary(view).level;
    light(level, MEANING[level]);
    when.textContent = clock(status.time_us) + (stale === null ? "" : `, figures ${span(stale)} old`);
  } catch (error) {
    light("bad", "no answer"); when.textContent = `no answer from the control process; everything else runs on without it (${error.message})`;
  }
}
refresh(); setInterval(() => document.hidden || refresh(), 1000);
