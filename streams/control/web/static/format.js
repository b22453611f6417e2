// How values are written for people.
export const fixed = digits => value => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative" }); // 0, never -0
export const few = value => fixed(value && Math.abs(value) < 10 ? 1 : 0)(value), whole = fixed(0), text = value => value;
export const brief = value => fixed(value < 10 ? 2 : value < 100 ? 1 : 0)(value);
export const percent = value => `${(100 * value).toFixed(value && value < .1 ? 1 : 0)}\u00a0%`;
export const span = s => s < 60 ? `${whole(s)} s` : s < 3600 ? `${whole(s / 60)} min` : s < 86400 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} d`;
export const amount = (value, name) => name.endsWith("_bytes") || name.endsWith(" bytes") ? `${few(value / 1e6)} MB` : whole(value);
export const holding = ({ name, value, limit }) => `${name.replaceAll("_", " ").replace(/ bytes$/, "")} ${amount(value, name)}${limit === null ? "" : ` of ${amount(limit, name)}`}`;
export const holdings = list => list.filter(each => each.value).map(holding).join(", ") || "–";
export const clock = time_us => new Date(time_us / 1000).toLocaleTimeString("en-GB"); // 24 hours
