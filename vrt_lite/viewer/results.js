// Results of many pairs: ladders with intervals and matrices of wins, and how far a judge agrees with people.

import { capitalize, drawInterval, fileName, h, listWarnings, makeScroll, makeTable, makeTitle } from "./dom.js";
import { numbers, quiet, quotePrompt, rowHead, said, signed } from "./dom.js";
import { filmOf, pictureOf } from "./pair.js";
import { makeThumbnail } from "./players.js";

const DIMENSIONS = ["TA", "VQ", "MQ"];
const ratingOf = (standing, key) => standing.ratings[key];
const span = ({ strength, low, high }) => [low ?? strength, high ?? strength];

/** How often a clip would win against the next one. */
const describeWinning = (share) =>
  `wins ${share >= 0.95 ? "more than 9" : Math.round(10 * share)} of 10 against the next`;

/** The ladder of a group, rated by one key. Below a clip that can be told from the next there is a line. */
export function showLadder({ ladder, words: { flags } }, key, name, media) {
  const overall = key === "OA";
  const measured = ladder.shown_first !== null;
  const standings = [...ladder.standings];
  if (!overall) standings.sort((a, b) => ratingOf(b, key).strength - ratingOf(a, key).strength || a.rank - b.rank);
  const spans = standings.map((standing) => span(ratingOf(standing, key)));
  const scale = [Math.min(...spans.map(([low]) => low)), Math.max(...spans.map(([, high]) => high))];
  const separates = new Set(standings.map((standing) => standing.together.join())).size > 1;
  const rows = standings.map((standing, at) => {
    const { strength, low, high } = ratingOf(standing, key);
    const clip = ladder.clips[standing.clip];
    const above = standings[at - 1]?.together ?? [];
    const isTold = !standing.together.some((letter) => above.includes(letter));
    const fresh = overall && at > 0 && separates && measured && isTold;
    const place = media[clip.sha256];
    const thumbnail = place && makeThumbnail(pictureOf(place, place.middle), filmOf(place), clip.name);
    const label = low === null ? signed(strength) : `${signed(strength)}, from ${signed(low)} to ${signed(high)}`;
    const wins = overall && standing.better_than_next !== null ? describeWinning(standing.better_than_next) : "";
    const counts = [standing.won, standing.tied, standing.lost, standing.undecided].join(" · ");
    const number = (heading, shown, kind = "") => h.td({ class: `number ${kind}`, "data-name": heading }, shown);
    return h.tr({ class: fresh ? "fresh" : "same" },
      h.td({ class: "rank" }, overall ? standing.rank : at + 1),
      h.td({ class: "thumb" }, thumbnail),
      h.th({ scope: "row", class: "clip" },
        fileName(clip.name, clip.path),
        flags[standing.clip] && [" ", h.span({ class: "tag" }, flags[standing.clip])],
        wins && h.span({ class: "wins quiet" }, wins),
      ),
      h.td({ class: "scale" }, drawInterval({ low, value: strength, high }, scale, label)),
      number(measured ? "Log odds" : "Score", signed(strength), "first"),
      overall && number("Won, tied, lost, undecided", counts),
      overall && number("Same as", standing.together.join(", ")),
    );
  });
  const more = overall ? ["Won, tied, lost, undecided", "Same as"] : [];
  const heads = ["Place", "Clip", "Name", "Strength", ...numbers(measured ? "Log odds" : "Score", ...more)];
  return makeTable("ladder", `The ladder, ${name}`, heads, rows);
}

/** What a pair prefers by a key, for the row's clip: its share, with half of a tie's, in words and as a number. */
function readPreference({ clips, preferences }, key, row, names) {
  const preference = preferences[key];
  if (!preference) return Object.keys(preferences).length ? ["–", null, "not judged"] : ["?", null, "no verdict"];
  const [own, other] = clips[0] === row ? [1, 2] : [2, 1];
  const { winner, leans, probabilities } = preference;
  const isKnown = probabilities && Object.values(probabilities).some(Boolean);
  const odds = isKnown ? probabilities : { [winner || "tie"]: 1 };
  const share = (odds[own] ?? 0) + (odds.tie ?? 0) / 2;
  const leaning = leans ? `undecided, leans to ${names[leans === own ? 0 : 1]}` : "undecided";
  const result = { [own]: "won", [other]: "lost", 0: "tied" }[winner];
  const won = { [own]: 1, [other]: 2, 0: 0 }[winner];
  return [`${(100 * share).toFixed(0)}`, share, preference.undecided ? leaning : result, won];
}

/** A cell: in per cent, how much better the row's clip is. */
function makeCell(pair, number, key, row, names) {
  if (!pair) return h.td(h.span({ class: "none", "aria-label": "not judged", role: "img" }, "·"));
  const [shown, own, result, won] = readPreference(pair, key, row, names);
  const differ = pair.disagreements.includes(key);
  const against = `${names[0]} against ${names[1]}: ${shown} per cent, ${result}`;
  const label = differ ? `${against}, the orders disagree` : against;
  const kind = own === null ? "none" : `share w${won}`;
  const to = { href: `#/pair/${number}`, class: kind, "aria-label": label, title: label };
  const link = h.a(to, shown + (differ ? "*" : ""));
  if (own !== null) link.style.setProperty("--certainty", String(Math.abs(own - 0.5) * 2));
  return h.td(link);
}

/** The matrix of the best clips by one key, shaded by probability; a click opens the pair. */
function showMatrix({ ladder, matrix }, key, name) {
  const best = matrix.clips;
  const places = new Map(matrix.pairs.map(({ clips }, at) => [clips.join(), at]));
  const rows = best.map((row, at) => {
    const own = best.map((column) => {
      if (row === column) return h.td(h.span({ class: "none", "aria-hidden": "true" }, "–"));
      const at = places.get([Math.min(row, column), Math.max(row, column)].join());
      const names = [ladder.clips[row].name, ladder.clips[column].name];
      return makeCell(matrix.pairs[at], matrix.numbers[at], key, row, names);
    });
    const title = [quiet(at + 1), " ", fileName(ladder.clips[row].name)];
    return h.tr(rowHead(title), own);
  });
  const heads = best.map((clip, at) => h.th({ scope: "col" }, h.abbr({ title: ladder.clips[clip].name }, at + 1)));
  const corner = h.th({ scope: "col" }, h.span({ class: "unseen" }, "Clip"));
  const caption = `In per cent, how much better the row's clip is than the column's, ${name}`;
  const more = ladder.standings.length - best.length;
  const rest = `The matrix shows the best ${best.length}; ${more} more clips are in the list of pairs.`;
  return [
    h.h3(`Pair by pair, ${name}`),
    makeScroll(`Win matrix, ${name}`, makeTable("matrix", caption, [corner, ...heads], rows)),
    h.p({ class: "quiet" }, "Per cent for the row's clip, half of a tie's share counted; a cell opens its pair."),
    more > 0 && h.p({ class: "quiet" }, rest),
  ];
}

/** One panel for each key that any pair was judged in, chosen by radio buttons. */
function showBoards(group, names, media, id) {
  const { ladder } = group;
  const keys = ["OA", ...DIMENSIONS.filter((key) => ladder.standings[0]?.ratings[key])];
  const panels = keys.map((key) => {
    const board = [showLadder(group, key, names[key], media), showMatrix(group, key, names[key])];
    return h.div({ "data-key": key, hidden: key !== "OA" }, board);
  });
  const choose = (event) => {
    for (const panel of panels) panel.hidden = panel.dataset.key !== event.target.value;
  };
  const input = (value) => h.input({ type: "radio", name: id, value, checked: value === "OA" });
  const inputs = keys.map((value) => h.label(input(value), h.span(names[value])));
  const of = ladder.group && h.span({ class: "unseen" }, ` in ${ladder.group}`);
  const choice = h.fieldset({ class: "bar-of-choices", onchange: choose }, h.legend("Rated by", of), inputs);
  return [choice, panels];
}

export const MEASURED = "Strength in log odds around the mean of all clips; bars are 95 % intervals. "
  + "Clips that share a letter cannot be told apart.";
const SCORED = "Scores of the judge, which judges each clip by itself; how far chance moves them was not measured.";

/** What is said of a group above its ladder; a job at work shows it too. */
export function showGroupWords({ words }) {
  return [listWarnings(words.warnings), words.conclusion && h.p({ class: "lead" }, said(words.conclusion))];
}

const listLines = (lines, kind = "listed") => h.ul({ class: kind }, lines.map((line) => h.li(said(capitalize(line)))));

function showGroup(group, at, { names, alone, media }) {
  const { ladder } = group;
  return h.section(
    !alone && h.h2(h.bdi(ladder.group || `Group ${at + 1}`)),
    quotePrompt(ladder.prompt),
    showGroupWords(group),
    h[alone ? "h2" : "h3"]("The ladder"),
    h.p({ class: "lead" }, ladder.shown_first ? MEASURED : SCORED),
    showBoards(group, names, media, `group${at}`),
    h.section(h.h3("To know"), listLines(group.words.notes)),
  );
}

/** The overview of a ranking. */
export function showRanking({ title, leader, lines, groups, left_out: leftOut, names, run, ...rest }, media) {
  const total = rest.group_count;
  const alone = total === 1;
  const leads = groups[0]?.ladder.best.length > 1 ? " leads" : " is best";
  const facts = lines.map((line, at) => h.p({ class: "how" }, h.bdi(line), !at && [" · ", h.bdi(run)]));
  const few = `The first ${groups.length} groups are shown; the pairs of all ${total} are in the list below.`;
  const items = leftOut.map(({ path, reason }) => h.li(said(path), ": ", said(reason)));
  return [
    h.header(makeTitle(leader ? [fileName(leader), leads] : title), facts),
    total > groups.length && h.p({ class: "lead" }, few),
    groups.map((group, at) => showGroup(group, at, { names, alone, media })),
    items.length > 0 && h.section(h.h2("Left out"), h.ul({ class: "listed" }, items)),
  ];
}

/** A table of words whose first heading names it, and whose first column names its rows. */
function showTable({ head, rows, stacks }) {
  const kind = stacks ? null : "number";
  const showCells = (cells) => cells.map((cell) => h.td({ class: kind }, h.bdi(cell)));
  const lines = rows.map(([name, ...cells]) => h.tr(rowHead(h.bdi(name)), showCells(cells)));
  const [first, ...rest] = head.map(capitalize);
  const headings = stacks ? [first, ...rest] : [first, ...numbers(...rest)];
  const table = makeTable(stacks ? "figures stacks" : "figures", first, headings, lines);
  return stacks ? table : makeScroll(first, table);
}

function showSection({ title, tables, lines, notes }) {
  const told = lines.map((line) => h.p(said(capitalize(line))));
  return h.section(h.h2(title), tables.map(showTable), told, notes.length > 0 && listLines(notes, "quiet"));
}

function showChart({ title, subtitle, rows }) {
  const drawRow = ({ words, mark, ...of }) => h.td(drawInterval(of, [0, 1], words, mark));
  const lines = rows.map((row) => h.tr(rowHead(h.bdi(row.label)), drawRow(row), h.td({ class: "number" }, row.words)));
  const ticks = ["0 %", "25 %", "50 %", "75 %", "100 %"].map((tick) => h.span(tick));
  const axis = h.tr({ "aria-hidden": "true" }, h.td(), h.td(h.p({ class: "axis" }, ticks)), h.td());
  const caption = h.caption(`${capitalize(title)}: `, quiet(subtitle));
  return h.table({ class: "chart" }, caption, h.tbody(lines, axis));
}

function showConfusion(counts) {
  const names = ["A better", "B better", "tie"];
  const most = Math.max(...counts.flat());
  if (!most) return "";
  const rows = counts.map((row, label) => {
    const cells = row.map((number, verdict) => {
      const cell = h.span({ class: number ? `share ${label === verdict ? "w1" : "w2"}` : "none" }, number);
      cell.style.setProperty("--certainty", String(number / most));
      return h.td(cell);
    });
    return h.tr(rowHead(`label: ${names[label]}`), cells);
  });
  const heads = names.map((name) => h.th({ scope: "col" }, `verdict: ${name}`));
  const caption = h.caption("Labels and verdicts");
  const table = h.table({ class: "matrix" }, caption, h.thead(h.tr(h.td(), heads)), h.tbody(rows));
  const scroll = makeScroll("Labels and verdicts", table);
  scroll.classList.add("chart");
  return scroll;
}

/** The overview of an evaluation, or of comparisons. */
export function showEvaluation({ title, heading, lines, lead, warnings, sections = [], charts = [], figures }) {
  const facts = h.p({ class: "how" }, lines.map((line, at) => [at ? " · " : "", h.bdi(line)]));
  const known = [lead && h.p({ class: "lead" }, said(lead)), listWarnings(warnings)];
  const counts = figures?.confusion[figures.main];
  const plots = charts.length > 0 && h.section(h.h2("Plots"), charts.map(showChart), counts && showConfusion(counts));
  return [h.header(makeTitle(heading ?? title), facts), known, sections.map(showSection), plots];
}
