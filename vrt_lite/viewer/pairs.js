// The pairs of a run: found by name and by what became of them, and opened one at a time.

import { all, fileName, h, makeTable, one, put, quiet, rowHead, visible } from "./dom.js";
import { showPage, showPair } from "./pair.js";

const PAGE = 50;
const FILTERS = { all: "", "the first is better": "1", "the second is better": "2", tie: "0", undecided: "undecided" };
const SIDE_OF = { 0: "tie", 1: "one", 2: "two", undecided: "undecided" };

function makeRow(row, number, hasPrompts) {
  const [first, second, prompt, winner, words, marks] = row;
  const link = h.a({ href: `#/pair/${number + 1}` }, fileName(first), " and ", fileName(second));
  const [before, named, after] = words.split(/\u001f([12])/); // the number of the clip that is named there
  const name = named && fileName(row[named - 1]);
  const better = h.bdi({ class: `choice ${SIDE_OF[winner] ?? "tie"}` }, before, name, after);
  const tags = marks.map((mark) => h.span({ class: mark === "as labelled" ? "tag plain" : "tag" }, mark));
  const cells = [rowHead(link)];
  if (hasPrompts) cells.push(h.td({ class: "quiet" }, h.bdi(prompt)));
  return h.tr(cells, h.td(better, tags));
}

/** The list of all pairs: searched, filtered, a page at a time. */
export function showFinder(rows) {
  const hasPrompts = new Set(rows.map((row) => row[2])).size > 1;
  const marks = {};
  for (const mark of rows.flatMap((row) => row[5])) marks[mark] = (marks[mark] ?? 0) + 1;
  const filters = Object.entries(FILTERS).map(([name, value]) => h.option({ value }, name));
  const counted = Object.entries(marks).map(([value, number]) => h.option({ value }, `${value} (${number})`));
  const search = h.input({ type: "search", autocomplete: "off", oninput: find });
  const kind = h.select({ onchange: find }, filters, counted);
  const table = makeTable("pairs stacks", "Pairs", hasPrompts ? ["Pair", "Prompt", "Better"] : ["Pair", "Better"], []);
  const before = h.button({ type: "button", onclick: () => show(page - 1) }, "Before");
  const after = h.button({ type: "button", onclick: () => show(page + 1) }, "After");
  const status = h.span({ role: "status", class: "quiet" });
  let found = rows.map((_, number) => number);
  let page = 0;

  function show(wanted) {
    page = wanted;
    const from = page * PAGE;
    const shown = found.slice(from, from + PAGE);
    put(one("tbody", table), shown.map((number) => makeRow(rows[number], number, hasPrompts)));
    const range = `${from + 1} to ${from + shown.length} of ${found.length} pairs`;
    status.textContent = found.length ? range : "No pair like that";
    before.disabled = page === 0;
    after.disabled = from + PAGE >= found.length;
  }
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.map((_, number) => number).filter((number) => {
      const [first, second, prompt, winner, , marked] = rows[number];
      const text = `${first} ${second} ${prompt}`.toLowerCase();
      const chosen = !kind.value || String(winner) === kind.value || marked.includes(kind.value);
      return chosen && words.every((word) => text.includes(word));
    });
    show(0);
  }
  show(0);
  const finder = h.div({ class: "finder" }, h.label("Find a name or a prompt", search), h.label("Show", kind));
  const pager = h.div({ class: "pager" }, before, after, status);
  return h.section({ class: "all" }, h.h2("Every pair"), finder, table, pager);
}

/** Show a run's overview, or the pair that the address names after its hash: so the browser's own back button works.
 *
 *  `readPair` gives the pair of a number. */
export function startRoutes(main, overview, { title, total, media }, readPair) {
  const place = h.div({ hidden: true, id: "pair" });
  let [from, origin] = [0, null];
  put(main, overview, place);

  const turn = (isOverview) => ([overview.hidden, place.hidden] = [!isOverview, isOverview]);
  function showOverview() {
    const left = place.hidden ? null : place.dataset.number;
    turn(true);
    put(place);
    document.title = visible(title);
    if (!left) return;
    window.scrollTo({ top: from, behavior: "instant" });
    // Back to the link that led away, or to another that can be seen.
    const links = all(`a[href="#/pair/${left}"]`, overview).filter((link) => link.checkVisibility());
    (links.find((link) => link === origin) ?? links[0])?.focus({ preventScroll: true });
  }
  async function go() {
    const number = Number(/^#\/pair\/(\d{1,9})$/.exec(location.hash)?.[1] ?? 0);
    if (number < 1 || number > total) return showOverview();
    if (place.hidden) [from, origin] = [window.scrollY, document.activeElement];
    const pair = await readPair(number);
    const link = (to, words) => to >= 1 && to <= total && h.a({ href: `#/pair/${to}` }, words);
    const here = [h.a({ href: "#/" }, "All results"), quiet(`Pair ${number} of ${total}`)];
    const others = [link(number - 1, "Previous pair"), link(number + 1, "Next pair")];
    const page = h.div(h.nav({ class: "crumbs", "aria-label": "Pairs" }, here, others), showPair(pair, media));
    place.dataset.number = String(number);
    turn(false);
    showPage(place, page, `Pair ${number}, ${title}`);
    window.scrollTo({ top: 0, behavior: "instant" });
  }
  window.addEventListener("hashchange", go);
  return go();
}
