// Elements and small drawings.
import { clock, percent } from "./format.js";

export function node(tag, content, className = "") {
  const made = document.createElement(tag); made.className = className;
  made.append(...(Array.isArray(content) ? content : [content ?? ""])); return made;
}
// A command to be copied: by click or by keyboard.
export function command(line) {
  const made = node("button", node("code", line), "command"); made.type = "button"; made.title = "copy this command"; made.dataset.key = `copy ${line}`;
  made.onclick = () => { navigator.clipboard?.writeText(line); made.classList.add("copied"); }; return made;
}
export function button(label, act, key = label, className = "") {
  const made = node("button", label, className); made.type = "button"; made.dataset.key = key; made.onclick = act; return made;
}
export function drawing(tag, attributes, content = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag); made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
// A plot of a few minutes; gaps where nothing is known. `top`: what the full height means, else the largest value. `marks`: steps of candidates.
export function spark(series, top = Math.max(...series.filter(value => value !== null), 1e-9), marks = [], width = 120, height = 24) {
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
// How long answers took: a bar for each span of time, with the objective as a line; what is over it is another colour.
export function bars({ bounds_ms, shares, objective_ms }, write, width = 120, height = 36) {
  const svg = drawing("svg", { width, height, role: "img" }), top = Math.max(...shares, 1e-9), wide = width / shares.length;
  shares.forEach((share, at) => {
    const high = share ? Math.max(1, share / top * (height - 2)) : 0, late = objective_ms !== null && (bounds_ms[at - 1] ?? 0) >= objective_ms && at > 0;
    const bar = drawing("rect", { x: (at * wide).toFixed(1), y: (height - high).toFixed(1), width: (wide - 1).toFixed(1), height: high.toFixed(1), class: late ? "late" : "bar" });
    bar.append(drawing("title", {}, `${percent(share)} ${at < bounds_ms.length ? `within ${write(bounds_ms[at])} ms` : "took longer"}`)); svg.append(bar);
  });
  svg.ariaLabel = shares.map((share, at) => share ? `${percent(share)} ${at < bounds_ms.length ? `within ${write(bounds_ms[at])} ms` : "longer"}` : "").filter(Boolean).join(", ");
  return svg;
}
// A mean with its bounds over time. The first quarter may lie outside: little is known then, and the bounds are far apart.
// `signed`: a difference, with a line at 0.
export function band(course, signed = false, width = 120, height = 36) {
  const svg = drawing("svg", { width, height, role: "img" }), last = course.at(-1), late = course.slice(Math.floor(course.length / 4));
  const top = Math.max(...late.map(each => each[3]), signed ? 0 : -1), bottom = Math.min(...late.map(each => each[2]), signed ? 0 : 1);
  const x = time_us => width * (time_us - course[0][0]) / (last[0] - course[0][0] || 1), y = value => Math.max(1, Math.min(height - 1, 1 + (height - 2) * (top - value) / (top - bottom || 1)));
  const line = (points, column) => points.map(each => `${x(each[0]).toFixed(1)},${y(each[column]).toFixed(1)}`).join(" ");
  if (course.length > 1) svg.append(drawing("polygon", { points: `${line(course, 3)} ${line(course.toReversed(), 2)}` }), drawing("polyline", { points: line(course, 1) }));
  if (signed && course.length) svg.append(drawing("line", { class: "zero", x1: 0, x2: width, y1: y(0), y2: y(0) }));
  svg.append(drawing("title", {}, course.length ? `since ${clock(course[0][0])}; ${bottom.toFixed(3)} to ${top.toFixed(3)}` : "nothing known yet")); return svg;
}
