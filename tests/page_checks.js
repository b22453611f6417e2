// What a page should not have, for tests in a browser. Each returns the beginnings of the elements that it finds.
const shown = one => one.outerHTML.slice(0, 90);
const every = (what, has) => [...document.querySelectorAll(what)].filter(has).map(shown);

const clipped = one => one && (getComputedStyle(one).clipPath !== "none" || clipped(one.parentElement)); // for ears alone

// What sticks out of the window, or is cut by what it lies in.
const cut = () => every("body *", one => {
  const box = one.getBoundingClientRect();
  if (box.width <= 1 || one.closest("[hidden], svg, canvas, pre") || clipped(one)) return false;
  return box.right > innerWidth + 1 || box.left < -1;
});

// What a screen reader could not name.
const unnamed = () => every("input, select, button, table, section, fieldset, canvas", one => {
  if (one.closest("[hidden], [aria-hidden]")) return false;
  const inside = one.querySelector("caption, legend")?.textContent;
  const drawn = one.matches("canvas") && one.closest("figure")?.querySelector("figcaption")?.textContent;
  const words = one.matches("button") && one.textContent;
  const names = [one.labels?.[0]?.textContent, one.ariaLabel, one.getAttribute("aria-labelledby"), inside, drawn, words];
  return !names.some(name => name && name.trim());
});

// Text whose contrast with what it stands on is under 4.5 (WCAG 2.2, AA), by the colours that are computed.
const linear = part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
const light = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
const read = text => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
function ground(one) {
  for (; one; one = one.parentElement) {
    const colour = read(getComputedStyle(one).backgroundColor);
    if (colour[3] !== 0) return colour;
  }
  return [255, 255, 255];
}
const pale = () => every("body *", one => {
  const says = [...one.childNodes].some(each => each.nodeType === Node.TEXT_NODE && each.data.trim());
  if (!says || !one.checkVisibility() || one.closest(".skip, .hidden")) return false;
  const [dark, bright] = [light(read(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05) < 4.5;
});
