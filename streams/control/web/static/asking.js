// What is asked of the page beyond figures: stories, dead letters, logs, and actions with a token.
import { button, command, node } from "./drawing.js";
import { clock, few, percent, whole } from "./format.js";
import { table } from "./rows.js";

const place = id => document.getElementById(id), put = (id, ...content) => place(id).replaceChildren(...content);
let token = "";
export const mayAct = () => token !== "";

async function told(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...(token ? { authorization: `Bearer ${token}` } : {}), ...options.headers } });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { command: found.command });
  return found;
}
const asked = (path, fields) => told(`${path}?${new URLSearchParams(Object.entries(fields).filter(([name, value]) => value || (name === "application" && value === "")))}`);
const acted = wish => told("/api/action", { method: "POST", body: JSON.stringify(wish), headers: { "content-type": "application/json" } });
async function into(id, ask, show) {
  put(id, node("p", "looking …", "dim"));
  try { const found = await ask(); put(id, ...show(found.said ?? found), ...(found.command ? [node("p", command(found.command))] : [])); }
  catch (error) { put(id, node("p", error.message, "alert bad"), ...(error.command ? [node("p", command(error.command))] : [])); }
}

const ms = us => us === null || us === undefined ? null : us / 1000;
const time = us => us ? `${new Date(us / 1000).toISOString().replace("T", " ").replace("Z", "")} UTC` : "–";
const LEG = [["model", "Model", "", value => value], ["on_way", "On its way", "ms", few], ["waited", "Waited", "ms", few], ["predicted", "Predicted", "ms, whole batch", few],
  ["rows", "Batch", "rows", whole], ["spare", "In time by", "ms", few], ["fate", "Outcome", "", value => value]];
const leg = one => ({ model: `${one.model} ${one.version}`.trim() + (one.is_shadow ? " (shadow)" : ""), on_way: ms(one.on_way_us), waited: ms(one.batch?.waited_us), predicted: ms(one.batch?.predict_us),
  rows: one.batch?.rows ?? null, spare: ms(one.spare_us), fate: one.is_late ? "LATE" : `${one.outcome}${one.message ? `: ${one.message}` : ""}`.toLowerCase() });
function story(found) {
  const [answer = {}] = found.answers, [query = {}] = found.queries, [observation = {}] = found.observations, decision = answer.decision;
  const facts = [["asked", time(answer.sent_us || query.sent_us)], ["application", answer.application ?? query.application], ["context", answer.context ?? query.context ?? "none"]];
  if (decision) facts.push(["decided by", `${decision.policy}, state version ${decision.state_version}`], ["probabilities", decision.arms.map((name, at) => `${name} ${percent(decision.propensities[at])}`).join(", ")]);
  if (answer.answered_us) facts.push(["answered", `${answer.status} ${answer.reason ?? ""} after ${few((answer.answered_us - (answer.sent_us || answer.received_us)) / 1000)} ms, due after ${few((answer.deadline_us - (answer.sent_us || answer.received_us)) / 1000)} ms`], ["answer", JSON.stringify(answer.answer ?? answer.best)]);
  if (found.late.length) facts.push(["too late", found.late.join(", ")]);
  if (observation.loss !== undefined) facts.push(["feedback", `loss ${observation.loss}`]);
  if (found.change) facts.push(["taught", `${found.change.name}: ${found.change.refused || `version ${found.change.before?.version ?? 0} to ${found.change.after?.version ?? "?"}`}`]);
  for (const dead of found.dead_letters) facts.push(["dead letter", `${dead.topic}: ${dead.cause}, ${dead.message}`]);
  for (const note of found.notes) facts.push(["note", note]);
  const list = node("dl", facts.filter(([, value]) => value).flatMap(([name, value]) => [node("dt", name), node("dd", String(value))]));
  return [list, ...(found.legs.length ? [table("Questions to models", LEG, found.legs.map(leg))] : []), whole_of("all of it", found)];
}
function whole_of(title, value) { return node("details", [node("summary", title), node("pre", JSON.stringify(value, null, 1))]); }
export function tell(id, at = "") {
  place("ask-id").value = id; place("ask-at").value = at; place("asked").scrollIntoView();
  history.replaceState(null, "", `/story/${encodeURIComponent(id)}${at ? `?at=${encodeURIComponent(at)}` : ""}`);
  return into("story", () => asked("/api/story", { id, at }), story);
}

function context(found) {
  const stored = found.stored, answers = found.answers;
  const facts = [["state", found.state], ["policy", stored?.policy ?? "none is stored: decided as for a new context"], ["lessons", stored ? whole(stored.version) : "0"], ...found.notes.map(note => ["note", note])];
  const list = node("dl", facts.flatMap(([name, value]) => [node("dt", name), node("dd", String(value))]));
  const said = one => `${time(one.sent_us || one.received_us)} ${[one.status?.toLowerCase(), one.reason, one.message].filter(Boolean).join(", ")} `;
  const stories = answers.map(one => node("li", [said(one), button(`story of ${one.query_id}`, () => tell(one.query_id), `story ${one.query_id}`)]));
  return [list, ...(stories.length ? [node("h3", "Its last answers"), node("ul", stories)] : []), whole_of("all of it", found)];
}
const DIFFERING = [["context", "Context", "", value => value], ["distance", "Distance", "from the mean", percent], ["weights", "Weights", "", value => value], ["lessons", "Lessons", "", whole]];
const shares = weights => Object.entries(weights).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, share]) => `${name} ${percent(share)}`).join(", ");
function differing(found) {
  const rows = found.contexts.map(one => ({ ...one, weights: shares(one.weights), context: button(one.context, () => contextOf(found.application, one.context), `context ${one.context}`) }));
  return [node("p", `usually ${shares(found.usual)}, in the mean of ${whole(found.among)} contexts that asked last`, "dim"), ...(rows.length ? [table("Contexts that differ most", DIFFERING, rows)] : [])];
}
function contextOf(application, name) {
  place("context-of").value = application; place("context").value = name;
  return into("story", () => asked("/api/context", { application, context: name }), context);
}
export function lately(application) {
  place("asked").scrollIntoView();
  return contextOf(application, "");
}
const GROUP = [["topic", "Topic", "", value => value], ["cause", "Cause", "", value => value], ["application", "Application", "", value => value], ["letters", "Letters", "", whole], ["redriven", "Sent again", "", whole],
  ["bytes", "Bytes", "", whole], ["oldest", "Oldest", "", value => value], ["newest", "Newest", "", value => value], ["doing", "", "", value => value]];
function groups(found) {
  if (!found.length) return [node("p", "there are none", "dim")];
  return [table("Dead letters that lie there", GROUP, found.map(one => {
    const which = { topic: one.topic, cause: one.cause, application: one.application ?? "" }, // "": those that tell of none
       key = `${one.topic} ${one.cause} ${one.application}`;
    return { ...one, doing: [button("show", () => into("lying", () => asked("/api/letter", which), letters), `show ${key}`), button("would send again", () => redrive({ ...which, dry_run: true }), `dry ${key}`),
      ...(mayAct() ? [button("send again", () => redrive(which), `redrive ${key}`, "act")] : [])] };
  })), ...(mayAct() ? [node("p", [...new Set(found.map(one => one.topic))].map(topic => button(`remove all of ${topic}`, () => purge(topic), `purge ${topic}`)))] : [])];
}
function purge(topic) { // what comes after the letters were counted stays
  const wish = more => acted({ action: "purge", topic, ...more });
  into("lying", () => wish({ dry_run: true }), found => [node("p", `${whole(found.removed)} letters of ${topic}, of whatever cause and application, would be gone for good: Kafka removes the beginning of a log alone.`),
    button("remove them for good", () => into("lying", () => wish({ before: found.before }), done => [node("p", `${whole(done.removed)} letters of ${topic} removed`)]), `remove ${topic}`, "act")]);
}
function letters(found) {
  return found.toReversed().map(one => {
    const about = one.value?.query_id ?? one.value?.id, where = one.from.partition === null ? one.from.topic : `${one.from.topic}, partition ${one.from.partition}, offset ${one.from.offset}`;
    const dump = Array.isArray(one.value) ? one.value.join("\n") : typeof one.value === "string" ? one.value : JSON.stringify(one.value, null, 1);
    return node("article", [node("h3", `${one.place}: ${one.cause}`), node("p", one.message), node("p", `${one.written}, from ${where}, ${whole(one.bytes ?? 0)} bytes, sent again ${one.sent_again} times`, "dim"), node("pre", dump ?? "no value"),
      ...(about ? [button(`story of ${about}`, () => tell(about), `story ${one.place}`)] : []), ...(mayAct() ? [button("send this one again", () => redrive({ place: one.place }), `redrive ${one.place}`, "act")] : [])], "letter");
  });
}
const list = counts => Object.entries(counts).map(([name, count]) => node("li", `${whole(count)} ${name}`));
function redrive(wish) {
  if (!wish.dry_run && !confirm(`Send again: ${Object.values(wish).filter(Boolean).join(", ")}?`)) return;
  into("lying", () => acted({ action: "redrive", ...wish }), found => [node("p", `${found.dry_run ? "would be sent again" : "sent again"}:`), node("ul", list(found.sent)), node("p", "not, because:"), node("ul", list(found.refused))]);
}
export const lying = fields => into("lying", () => asked("/api/letters", fields), groups);
export const shown = fields => into("lying", () => asked("/api/letter", fields), letters);
const UNREAD = [["role", "Role", "", value => value], ["topic", "Topic", "", value => value], ["partition", "Partition", "", whole], ["at", "From", "offset", whole], ["end", "End", "offset", whole], ["unread", "Unread", "records", whole]];
export function lag() {
  place("log").hidden = false;
  return into("log", () => asked("/api/lag", {}), found => found.length ? [table("Partitions that are not read to their end", UNREAD, found)] : [node("p", "every partition is read to its end", "dim")]);
}
export function log(process) {
  place("log").hidden = false;
  return into("log", () => asked("/api/log", { process }), found => [node("h3", `Last lines of ${found.process}`), node("pre", found.text || "nothing yet", "log")]);
}

export function begin() {
  place("ask").onsubmit = event => { event.preventDefault(); tell(place("ask-id").value.trim(), place("ask-at").value.trim()); };
  place("ask-context").onsubmit = event => { event.preventDefault(); contextOf(place("context-of").value.trim(), place("context").value.trim()); };
  place("differing").onclick = () => place("context-of").reportValidity() && into("story", () => asked("/api/contexts", { application: place("context-of").value.trim() }), differing);
  place("token-form").onsubmit = event => { event.preventDefault(); token = place("token").value.trim(); place("act").hidden = !token; put("done", node("p", token ? "it is sent with what is asked from now on, until this window is closed" : "no token", "dim")); };
  place("act").onsubmit = event => {
    event.preventDefault(); const action = event.submitter.value, model = place("act-model").value.trim();
    if (confirm(`${action} ${model}?`)) into("done", () => acted({ action, model }), found => [node("pre", JSON.stringify(found, null, 1))]);
  };
  const named = location.pathname.match(/^\/story\/(.+)$/);
  if (named) tell(decodeURIComponent(named[1]), new URLSearchParams(location.search).get("at") ?? "");
  const dead = location.pathname.match(/^\/letter\/(.+)$/);
  if (dead) into("lying", () => asked("/api/letter", { place: decodeURIComponent(dead[1]) }), letters);
}
