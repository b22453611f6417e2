// The page: asks for the figures each second, and shows them.
import * as asking from "./asking.js";
import * as charts from "./charts.js";
import { button, node } from "./drawing.js";
import { clock, few, percent, span } from "./format.js";
import { alert, application, concerns, folded, held, isIdle, links, listed, marked, planned, promotions, summary, table } from "./rows.js";
import { FEW_HAVE, LETTER, OFF, PROCESS } from "./words.js";

const place = id => document.getElementById(id);
// What is replaced may have the keyboard's focus: what has the same key gets it back.
function put(id, ...content) {
  const key = document.activeElement?.dataset?.key, was = place(id).contains(document.activeElement);
  place(id).replaceChildren(...content);
  if (was && key) [...place(id).querySelectorAll("[data-key]")].find(each => each.dataset.key === key)?.focus();
}
let wanted = "", last = null;
const fits = (...names) => !wanted || names.some(name => String(name ?? "").toLowerCase().includes(wanted));

function show(status) {
  const view = status.overview;
  const lately = found => found.application ? [button("its last answers", () => asking.lately(found.application), `answers ${found.application} ${found.command}`)] : [];
  put("alerts", ...(view.alerts.length ? view.alerts : [summary(view)]).map(found => alert(found, ...lately(found))));
  const steps = marked(view.steps, status.time_us), rows = view.applications.filter(row => fits(row.name, ...row.models.map(model => model.name)));
  const cards = rows => rows.map(row => application({ ...row, serving: view.serving[row.name], marks: steps.filter(concerns(row)) }));
  const quiet = rows.filter(isIdle), idle = quiet.length > 1 ? quiet : [], busy = rows.filter(row => !idle.includes(row));
  put("applications", ...cards(busy), ...(idle.length ? [folded(`${idle.length} applications that nobody has asked for five minutes: ${listed(idle.map(row => row.name), 12)}`, () => cards(idle))] : []),
    ...view.left_out.map(said => node("p", `No room to watch for drift: ${said}`, "dim")));
  put("promotions", ...promotions(view, steps));
  put("plans", ...(view.plans.length ? [node("h2", "Hosts by plan"), ...view.plans.map(planned)] : []));
  put("hosts", ...(view.hosts.length ? [node("h2", "Models of hosts"), ...view.hosts.map(held)] : []));
  const known = [...PROCESS, OFF].filter(([key]) => !FEW_HAVE[key] || view.processes.some(FEW_HAVE[key]));
  const processes = view.processes.filter(row => fits(row.instance)).map(row => ({ ...row, doing: [button("log", () => asking.log(row.instance), `log ${row.instance}`)] }));
  put("processes", table("Processes of this deployment", [...known, ["doing", "", "", value => value]], processes, row => row.silent ? "silent" : ""), button("unread by partition", asking.lag, "lag"));
  const letters = view.dead_letters.filter(row => fits(row.topic, row.cause)).map(row => ({ ...row, cause: row.cause.replaceAll("_", " "), doing: [button("show", () => asking.shown({ topic: row.lies_with, cause: row.cause }), `show ${row.topic} ${row.cause}`)] }));
  put("letters", letters.length ? table("Dead letters since the start of the processes", [...LETTER, ["doing", "", "", value => value]], letters) : node("span", "none since the processes were started ", "dim"),
    button("list all that lie there", () => asking.lying({}), "list letters"));
  charts.choose(rows.map(row => row.name));
  charts.refresh(status);
  const parts = links();
  if (place("parts").childElementCount !== parts.length) put("parts", ...parts); // a link stays while it is clicked
  if (place("figures").open) put("all", JSON.stringify(status, (key, value) => key === "overview" ? undefined : value, 1));
  place("known").className = view.stale_s === null ? "" : "stale";
  place("place").textContent = `${view.prefix}${view.kafka ? ` on Kafka at ${view.kafka}` : ""}`;
  document.title = `${view.alerts.length ? `(${view.alerts.length}) ` : ""}${view.prefix} · Skysail · ${view.kafka}`;
}
const MEANING = { well: "nothing is wrong", warn: "something may go wrong", bad: "something is wrong" };
const COLOUR = { well: "24875a", warn: "a86a00", bad: "b9293f" };
let lit = "";
// The dot, in the tab, too; who cannot see it is told when it changes.
function light(level, meaning) {
  if (lit === level + meaning) return;
  lit = level + meaning; place("state").className = `dot ${level}`; place("state").ariaLabel = place("state").title = place("said").textContent = meaning;
  document.querySelector("link[rel=icon]").href = `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='%23${COLOUR[level]}'/></svg>`;
}
async function refresh() {
  const when = place("when");
  try {
    const status = last = await (await fetch("/api/status")).json(), view = status.overview, stale = view.stale_s;
    if (getSelection().isCollapsed) show(status); // what is being marked to be copied stays
    const level = view.alerts.length ? view.level : summary(view).level;
    light(level, view.alerts.length ? `${MEANING[level]}: ${view.alerts.length === 1 ? "one alert" : `${view.alerts.length} alerts`}` : MEANING[level]);
    when.textContent = clock(status.time_us) + (stale === null ? "" : `, figures ${span(stale)} old`);
  } catch (error) {
    light("bad", "no answer"); when.textContent = `no answer from the control process; everything else runs on without it (${error.message})`;
  }
}
const again = () => last && show(last);
place("filter").oninput = event => { wanted = event.target.value.trim().toLowerCase(); again(); };
charts.begin(again); asking.begin();
refresh(); setInterval(() => document.hidden || refresh(), 1000);
