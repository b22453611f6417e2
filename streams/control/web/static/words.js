// What figures are called, and what they mean: the one place for it.
import { brief, few, fixed, holdings, percent, span, text, whole } from "./format.js";
import { command, node, spark } from "./drawing.js";

export const share = series => spark(series, 1), lag = series => spark(series, Math.max(100, ...series)); // a few records are no lag

const legs = ({ wait, predict }) => `${wait === null ? "–" : brief(wait)}, ${predict === null ? "–" : brief(predict)}`;
// What a figure is called, its unit, how it is written, and what it means: the one place for it.
export const MODEL = [
  ["name", "Model", "", text], ["version", "Version", "", text],
  ["share", "Share", "of model calls", percent, "share of the model calls of this application that went to it"],
  ["shares", "Share", "last 5 min", share], ["weight", "Weight", "in the policy", percent, "of the policy's global state; users (contexts) may have others"],
  ["loss", "Mean loss", "last minute", fixed(3), "where it was asked and feedback came"],
  ["cost", "Cost", "of 1,000 answers", few, "last minute, in the unit of the application's loss"],
  ["failed", "Failed", "of inputs", percent, "of this application's questions to it: it raised"],
  ["invalid", "Refused", "of inputs", percent, "of this application's questions to it: it does not take such an input"],
  ["batch", "Batch", "rows, of at most", text, "the cap is the worker's own choice"], ["queue_rows", "Queue", "rows", whole],
  ["p50_ms", "Median", "ms", few, "of the last minute, from being fetched by the worker to being predicted"], ["p99_ms", "99 % within", "ms", few, "p99 of the last minute"],
  ["budget", "Waits, runs", "ms", legs, "what a row that came now would wait for its batch, and what a batch takes"]];
export const VERSION = [
  ["name", "Model", "", text], ["version", "Version", "", text], ["label", "Label", "", text],
  ["share", "Answers", "of its queries", percent, "a shadow sees every query and answers none"],
  ["loss", "Mean loss", "last minute", fixed(3), "where feedback came: of its own answers, a shadow's too"]];
export const OF_ALL = "of the whole process: of roles that share one, the first tells it";
export const PROCESS = [
  ["instance", "Process", "", text], ["age_s", "Last heard", "ago", span], ["up_s", "Up for", "", span], ["restarts", "Restarts", "seen", whole],
  ["cpu", "CPU", "of a core", percent, OF_ALL], ["memory_mb", "Memory", "MB", whole, OF_ALL], ["lag", "Unread", "records", whole, "consumer lag"],
  ["lags", "Unread", "last 5 min", lag], ["holds", "Holds", "", holdings, "of what it keeps and that may grow"]];
export const OFF = ["clock_off_ms", "Clock ahead", "ms", whole, "of its machine's: after a step backwards it follows slowly"];
export const FEW_HAVE = { cost: row => row.cost !== null, clock_off_ms: row => Math.abs(row.clock_off_ms) >= 1, holds: row => row.holds.some(each => each.value) }; // shown where somebody has it
export const LETTER = [["topic", "Topic", "", text], ["cause", "Cause", "", text], ["minute", "Last minute", "records", whole],
  ["total", "Since the start", "of the process", whole], ["command", "See them with", "", command]];
export const loss = fixed(3), between = row => `${loss(row.difference)} [${loss(row.lower)}, ${loss(row.upper)}]`;
const exact = value => Number(value.toPrecision(3)).toString();
export const beyond = row => node("small", `${row.metric}: ${exact(row.difference)} [${exact(row.lower)}, ${exact(row.upper)}]${row.unit && ` ${row.unit}`}${row.guardrail === null ? "" : `, at most ${exact(row.guardrail)} worse`}`);
export const policy = name => name.split(/(?<=[,(])/).flatMap(part => [node("wbr"), part]); // a line may end after each parameter
export const named = row => row.kind === "version" ? [`${row.name} ${row.candidate}`] : policy(row.candidate);
export const belongs = (row, beside) => node("small", [...(row.kind === "version" ? [] : [`of ${row.name}`, ...(beside ? [", "] : [])]), ...(beside ? ["beside ", ...policy(beside)] : [])]);
export const CANDIDATE = [
  ["who", "Candidate", "", text], ["share", "Answers", "of queries", percent], ["pairs", "Comparisons", "", whole],
  ["bounds", "Better by", "mean loss, bounds", text, "the bounds hold however often one looks; below: over time, dashed at 0"], ["cost", "Has cost", "errors", few, "beyond those of what it is compared with"], ["reason", "Stays, as", "", text]];
export const STEP = [
  ["when", "Time", "", text], ["who", "Candidate", "", text], ["action", "Step", "and answers", text],
  ["pairs", "Comparisons", "", whole], ["bounds", "Better by", "mean loss, bounds", text], ["reason", "Because", "", text]];
export const PLACE = [
  ["instance", "Host", "", text], ["placed", "Models", "rows a second, rows a batch, how often", text], ["per_s", "Asked", "a second", few]];
export const HOST = [
  ["resident", "models in memory", (value, row) => `${whole(value)} of ${whole(row.known)}`],
  ["bytes", "MB in memory", (value, row) => `${few(value / 1e6)} of ${few(row.budget_bytes / 1e6)}`],
  ["loads", "times loaded", whole], ["evictions", "times unloaded for another one", whole],
  ["refused", "rows refused: not in time", whole], ["ends", "ends of the models' process", whole],
  ["longer", "of batches took longer than predicted", (value, row) => shown(value, percent)], ["shorter", "of batches took less", (value, row) => shown(value, percent)]];
export const TIMES = [
  ["name", "Model", "", text], ["p99s", "99 % within", "ms, by rows of a batch", text, "longest of the last ten of a size: so long a batch is predicted to take; kept over restarts"],
  ["load_ms", "Loading", "ms", brief, "longest of the last ten"], ["batches", "Batches", "predicted", whole],
  ["predicted_ms", "Predicted", "ms, mean", brief], ["actual_ms", "Actual", "ms, mean", brief],
  ["longer", "Took longer", "than predicted", percent], ["shorter", "Took less", "than predicted", percent]];
export const OUT = [["name", "Model", "", text], ["version", "Version", "", text], ["times", "Taken out", "times in a row", whole], ["reason", "Because", "", text]];
export const TILES = [
  ["rate", "answers a second", few, "rates"], ["in_time", "answered by a model in time", percent],
  ["defaults", "default answers", percent, "default_shares"], ["latency", "ms to answer, last minute: half within / 99 % within", text],
  ["loss", "mean loss, last minute", fixed(3), "losses"]];
// What a tile says in small letters below its figure: the same subject, seen from another side.
export const BESIDE = { rate: ["joined", "feedback joined a second", few], latency: ["late", "after the deadline", percent], loss: ["cost", "is what 1,000 answers cost", few] };
export const SHAPES = { reason: "prose", who: "long", p99s: "prose", placed: "prose" };
// Below the applications, of which there may be many: links to what is there.
export const PARTS = { applications: "Applications", over: "Over time", promotions: "Promotion on evidence", plans: "Hosts by plan", hosts: "Models of hosts", processes: "Processes", letters: "Dead letters", asked: "One query" };
export const LIMITS = { defaults: .05, late: .05, failed: .05, invalid: .05, restarts: 1 }, TEXTS = ["name", "version", "label", "instance", "topic", "cause", "command", "holds", "who", "when", "action", "reason", "p99s", "placed"];

