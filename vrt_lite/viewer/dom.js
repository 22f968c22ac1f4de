// Makes elements. Whatever is said (names, prompts, replies) becomes a text node or an attribute, never markup.

const UNSEEN = /[^\p{L}\p{M}\p{N}\p{P}\p{S} \n\u00a0\u3000\u200c\u200d]/gu;
const SVG = "http://www.w3.org/2000/svg";

/** A text in which characters that cannot be seen, or that change its direction, are visible escapes. */
export function visible(text) {
  return String(text).replaceAll("\t", "    ").replace(UNSEEN, (character) => {
    const code = character.codePointAt(0).toString(16);
    const [mark, digits] = code.length < 3 ? ["x", 2] : code.length < 5 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.padStart(digits, "0")}`;
  });
}

function fill(element, parts) {
  const hasAttributes = parts[0] && Object.getPrototypeOf(parts[0]) === Object.prototype;
  for (const [name, value] of Object.entries(hasAttributes ? parts.shift() : {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (name === "src" || name === "poster") element.setAttribute(name, value ?? "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, visible(value));
  }
  for (const child of parts.flat(Infinity)) {
    if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false && child !== "") element.append(visible(child));
  }
  return element;
}

/** Elements by their tags: h.p({ class: "quiet" }, "words", h.br()). An attribute "onclick" and the like is a listener;
 *  one that is null or false is left out, as is such a child. */
export const h = new Proxy({}, { get: (_, tag) => (...parts) => fill(document.createElement(tag), parts) });
export const draw = (tag, ...parts) => fill(document.createElementNS(SVG, tag), parts);

/** Add to a place; and show these in it, and nothing else. */
export const add = (place, ...parts) => fill(place, parts);
export function put(place, ...parts) {
  place.replaceChildren();
  return fill(place, parts);
}

export const one = (selector, root = document) => root.querySelector(selector);
export const all = (selector, root = document) => [...root.querySelectorAll(selector)];
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const capitalize = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
export const middle = (list) => list[Math.floor(list.length / 2)];

/** A text from outside, in its own direction. A long word, such as a path, breaks after slashes, dots and dashes. */
export function said(text, tag = "bdi") {
  const split = (word) => word.split(/(?<=[/\\_.-])(?=[^/\\_.-])/).map((part, at) => [at > 0 && h.wbr(), part]);
  const parts = visible(text).split(/(\S{24,})/);
  return h[tag]({ dir: "auto" }, parts.map((part, at) => (at % 2 ? split(part) : part)));
}

/** A file's name on one line: where there is no room the style cuts its middle, as clips often differ at the end. */
export function fileName(name, title = name) {
  const letters = [...visible(name)];
  let end = letters.length > 20 ? letters.length - 10 : 0;
  while (end && /\p{M}/u.test(letters[end])) end -= 1;
  const parts = end ? [letters.slice(0, end), letters.slice(end)].map((part) => h.span(part.join(""))) : name;
  return h.bdi({ class: "file", title }, parts);
}

/** The last part of a clip's path; of numbered pictures the last two. */
export function nameOf(path) {
  const parts = path.replaceAll("\\", "/").replace(/\/+$/, "").split("/");
  return parts.slice(path.includes("%") ? -2 : -1).join("/") || path;
}

/** Headings of columns of numbers. */
export const numbers = (...names) => names.map((name) => h.th({ scope: "col", class: "number" }, name));

/** A table: its caption for those who cannot see it, headings, and rows that are made already. */
export function makeTable(kind, caption, headings, rows) {
  const heads = headings.map((name) => (name instanceof Node ? name : h.th({ scope: "col" }, name)));
  const top = headings.length ? h.thead(h.tr(heads)) : "";
  return h.table({ class: kind }, caption && h.caption({ class: "unseen" }, caption), top, h.tbody(rows));
}

/** A wide table scrolls by itself. */
export const makeScroll = (name, table) =>
  h.div({ class: "scroll", tabindex: 0, role: "region", "aria-label": name }, table);

/** What is to be known, before all else. */
export function listWarnings(lines) {
  const own = { class: "warnings", "aria-label": "Warnings" };
  return lines.length > 0 && h.section(own, h.ul(lines.map((line) => h.li(said(line)))));
}

export const makeField = (label, input) => h.p({ class: "field" }, h.label({ for: input.id }, label), input);
export const makeTitle = (...words) => h.h1({ tabindex: -1 }, words);
export const quiet = (...words) => h.span({ class: "quiet" }, words);
export const rowHead = (...words) => h.th({ scope: "row" }, words);
export const quotePrompt = (prompt) =>
  prompt ? h.blockquote({ class: "prompt" }, h.bdi({ dir: "auto" }, prompt)) : "";

/** A share as a percentage; only exactly 0 or 1 is 0 % or 100 %. No line breaks before the sign. */
export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1\u00a0%";
  if (share < 1 && share >= 0.9995) return ">99.9\u00a0%";
  return `${(100 * share).toFixed(share === 0 || share === 1 ? 0 : 1)}\u00a0%`;
}

/** A moment of a clip, or its length. */
export const moment = (seconds) =>
  seconds < 600
    ? `${seconds.toFixed(2)}\u00a0s`
    : `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(1).padStart(4, "0")}\u00a0min`;

/** A moment in Unix seconds, as 2026-01-31 14:05. */
export const when = (seconds) =>
  new Date(1000 * seconds).toLocaleString("sv", { dateStyle: "short", timeStyle: "short" });

/** How long work takes. */
export function duration(seconds) {
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** A number of bytes in decimal units, as in the terminal. */
export function bytes(size) {
  if (size < 1e5) return `${Math.ceil(size / 1e3)}\u00a0kB`;
  return size < 1e9 ? `${(size / 1e6).toFixed(1)}\u00a0MB` : `${(size / 1e9).toFixed(2)}\u00a0GB`;
}

export const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;

/** A share of a drawing's width: drawings stretch. */
export const position = (share) => `${(100 * clamp(share, 0, 1)).toFixed(3)}%`;

/** A value and its interval, if it has one, on a scale that several share, with the scale's zero. */
export function drawInterval({ low, value, high }, [from, to], label, kind = "") {
  const x = (at) => position((at - from) / (to - from || 1));
  const upright = (name, at, y1, y2) => draw("line", { class: name, x1: x(at), x2: x(at), y1, y2 });
  const known = low !== null && low !== undefined;
  return draw("svg", { class: `interval ${kind}`, role: "img", "aria-label": label },
    from <= 0 && to >= 0 && upright("zero", 0, 0, "100%"),
    known && draw("line", { class: "span", x1: x(low), x2: x(high), y1: "50%", y2: "50%" }),
    known && [low, high].map((end) => upright("end", end, 6, 18)),
    draw("circle", { class: "dot", cx: x(value), cy: "50%", r: 5 }),
  );
}
